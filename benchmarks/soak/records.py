"""Records of a soak in its directory, one per line, so that the report covers all parts, including interrupted ones."""

import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

KINDS = ("parts", "samples", "answers", "acts", "status", "given", "missed")
"""parts: begin and end of each; samples: of processes; answers: to users; acts: upon the daemon; status: of the
daemon, shortened; given: ids of lines that have to be learned once; missed: faults."""

Record = dict[str, Any]


class Records:
    """Record files, appended to by several threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._one_at_a_time = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        for path in filter(Path.exists, map(self._path, KINDS)):
            if not path.read_bytes().endswith(b"\n"):
                path.write_bytes(path.read_bytes() + b"\n")  # ends an unfinished line

    def keep(self, kind: str, *records: Record) -> None:
        """Append records of a kind; they are on the disk when it returns."""
        text = "".join(f"{json.dumps(record)}\n" for record in records)
        with self._one_at_a_time, self._path(kind).open("a", encoding="utf-8") as file:
            file.write(text)

    def all(self, kind: str) -> list[Record]:
        """The records of all parts, in the order of writing, without unfinished lines."""
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
