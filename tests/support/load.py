"""Lines dropped into an inbox without a pause, and what has to become of each of them."""

import random
import threading
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from support.daemon import chat_line

from apollod.core import events as ev
from apollod.wire.records import parse_line

GROWING = 3  # files that are appended to in place


class Load:
    """Files renamed in and files appended to, with good lines, bad ones and duplicates. What is written is a function
    of the seed; when, and what the daemon makes of it meanwhile, is up to the scheduler."""

    def __init__(self, inbox: Path, seed: int, period_s: float = 0.05) -> None:
        self.lines: dict[str, list[bytes]] = {}
        """path -> its complete lines, in order"""
        self._inbox = inbox
        self._chance = random.Random(seed)
        self._period_s = period_s
        self._good: list[bytes] = []
        self._serial = 0
        self._torn: dict[Path, bytes] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Load":
        self._thread.start()
        return self

    def stop(self) -> None:
        """No more lines; a torn last one gets its end."""
        self._end.set()
        self._thread.join()
        for path in list(self._torn):
            self._append(path, b"")

    def drop(self, name: str, lines: Iterable[bytes]) -> None:
        """One whole file, renamed in."""
        path, part = self._inbox / name, self._inbox / f".{name}.part"
        self.lines[str(path)] = [line + b"\n" for line in lines]
        part.write_bytes(b"".join(self.lines[str(path)]))
        part.rename(path)

    def mixed(self, count: int) -> list[bytes]:
        return [self._line() for _ in range(count)]

    @property
    def total(self) -> int:
        return sum(map(len, self.lines.values()))

    def _run(self) -> None:
        while not self._end.wait(self._period_s):
            if self._chance.random() < 0.5:
                self._serial += 1
                self.drop(f"f{self._serial:06d}.jsonl", self.mixed(self._chance.randint(1, 5)))
            else:
                path = self._inbox / f"grows{self._chance.randrange(GROWING)}.jsonl"
                text = b"".join(line + b"\n" for line in self.mixed(self._chance.randint(1, 3)))
                self._append(path, text, self._chance.choice([0, 0, 7]))

    def _append(self, path: Path, text: bytes, missing: int = 0) -> None:
        """Append to a file in place, the last `missing` bytes only the next time."""
        whole = self._torn.pop(path, b"") + text
        known = self.lines.setdefault(str(path), [])
        if missing:
            self._torn[path] = whole[-missing:]
        known += text.splitlines(keepends=True)
        with path.open("ab") as file:
            file.write(whole[: len(whole) - missing])

    def _line(self) -> bytes:
        self._serial += 1
        kind = self._chance.random()
        if kind < 0.15:
            return b"not json %d" % self._serial
        if kind < 0.3 and self._good:
            return self._chance.choice(self._good)
        self._good.append(chat_line(f"question {self._serial}?", f"answer {self._serial}.").encode())
        return self._good[-1]


def check_intake(events: list[ev.Event], load: Load) -> None:
    """Every line became exactly one fact: an example the first time, a duplicate after that, or bytes in quarantine."""
    paths = {e.source: e.path for e in events if isinstance(e, ev.SourceDiscovered)}
    accepted = [(paths[e.source], e.line) for e in events if isinstance(e, ev.ExampleAccepted)]
    duplicate = [(paths[e.source], e.line) for e in events if isinstance(e, ev.ExampleDuplicate)]
    quarantined = {(e.path, e.line): e for e in events if isinstance(e, ev.SourceQuarantined)}
    bad = {
        (path, n): line
        for path, lines in load.lines.items()
        for n, line in enumerate(lines, 1)
        if line.startswith(b"not json")
    }
    good = {
        (path, n): line for path, lines in load.lines.items() for n, line in enumerate(lines, 1) if (path, n) not in bad
    }

    assert sorted(accepted + duplicate) == sorted(good), "a good line was lost, or taken twice"
    assert sorted(parse_line(good[where]).id for where in accepted) == sorted(
        {parse_line(line).id for line in good.values()}
    )
    assert [e.example for e in events if isinstance(e, ev.ExampleAccepted)] == [
        parse_line(good[where]).id for where in accepted
    ]
    assert quarantined.keys() == bad.keys() and sum(isinstance(e, ev.SourceQuarantined) for e in events) == len(bad)
    for where, event in quarantined.items():
        assert Path(event.kept).read_bytes() == bad[where] and event.sha256 == sha256(bad[where]).hexdigest()
