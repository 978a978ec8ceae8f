"""What a soak keeps in its directory, a line each, so that the report covers all parts, also one that was cut."""

import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

KINDS = ("parts", "samples", "answers", "acts", "status", "given", "missed")
"""parts: begin and end of each; samples: of processes; answers: to users; acts: what was done to the daemon; status: of
the daemon, shortened; given: ids of lines that have to be learned once; missed: what was seen to be wrong."""

Record = dict[str, Any]


class Records:
    """Appended to by several threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._one_at_a_time = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        for path in filter(Path.exists, map(self._path, KINDS)):
            if not path.read_bytes().endswith(b"\n"):
                path.write_bytes(path.read_bytes() + b"\n")  # a line that was cut

    def keep(self, kind: str, *records: Record) -> None:
        """Append records of a kind; on the disk when it returns."""
        text = "".join(f"{json.dumps(record)}\n" for record in records)
        with self._one_at_a_time, self._path(kind).open("a", encoding="utf-8") as file:
            file.write(text)

    def all(self, kind: str) -> list[Record]:
        """Of all parts, in the order of writing. A last line that was cut is left out."""
        path = self._path(kind)
        return list(_parsed(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []

    def _path(self, kind: str) -> Path:
        assert kind in KINDS, kind
        return self._directory / f"{kind}.jsonl"


def _parsed(lines: Iterable[str]) -> Iterator[Record]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue
