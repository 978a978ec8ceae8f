"""Agents that write without a pause: logs that grow, move and are rotated, and a database; and what has to be learned
of them."""

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from support.agent_databases import Hermes
from support.agent_logs import claude_line, session

from apollod.core import events as ev
from apollod.wire.records import decode_record

KINDS = ["begin", *["go on"] * 12, "move", "rotate", "copy and truncate"]
"""what is done next, as often as it is here"""


class Log:
    """A session and the file in which it is written; `rest`: what is not there yet."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.records = 0
        self.rest = b""

    def write(self, size: int | None = None) -> None:
        """So many bytes, or all, of what is left."""
        more, self.rest = (self.rest, b"") if size is None else (self.rest[:size], self.rest[size:])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(more)


class AgentLoad:
    """Everything below `directory`. What is written is a function of the seed; when, and what the daemon makes of it
    meanwhile, is up to the scheduler."""

    def __init__(self, directory: Path, seed: int, period_s: float = 0.02) -> None:
        self.records: list[str] = []
        """ids of the answers in logs"""
        self.texts: list[str] = []
        """of all answers"""
        self.copied = 0
        """answers in logs that were copied: they come again"""
        self.done: Counter[str] = Counter()
        self._directory = directory
        self._chance = random.Random(seed)
        self._period_s = period_s
        self._logs: list[Log] = []
        self._serial = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "AgentLoad":
        """Begin to write; returns when the database is there."""
        ready = threading.Event()
        self._ready = ready
        self._thread.start()
        ready.wait()
        return self

    def wait(self) -> None:
        """Returns when each kind of thing was done."""
        while len(self.done) < len({*KINDS}):
            assert self._thread.is_alive()
            time.sleep(0.05)

    def stop(self) -> None:
        """Nothing more comes; all turns are over."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        chats = Hermes(self._directory / "hermes" / "state.db")
        chats.begin("s0")
        self._ready.set()
        while not self._end.wait(self._period_s):
            self._step()
            if self._chance.random() < 0.2:
                chats.ask("s0", self._text("ask"))
                chats.answer("s0", self._text("answer", True))
        chats.ask("s0", "bye")
        chats.db.close()
        for log in self._logs:
            self._finish(log)

    def _step(self) -> None:
        what = self._chance.choice(KINDS)
        self.done[what] += 1
        if what == "begin" or not self._logs:
            deep = "/".join(f"d{self._chance.randrange(4)}" for _ in range(self._chance.randint(0, 2)))
            self._begin(self._directory / deep / f"p{self._number()}" / "session.jsonl")
            return
        log = self._chance.choice(self._logs)
        if what == "go on":
            self._turn(log)
            log.write(self._chance.randint(0, len(log.rest)))
        elif what == "move":
            new = self._directory / f"moved{self._number()}" / log.path.name
            new.parent.mkdir()
            log.path.rename(new)
            log.path = new
        else:
            self._finish(log)
            self._logs.remove(log)
            old = log.path.with_name(f"{log.path.stem}.{self._number()}.jsonl")
            if what == "rotate":
                log.path.rename(old)
            else:
                shutil.copyfile(log.path, old)
                self.copied += log.records // 2
                with log.path.open("r+b") as file:
                    file.truncate()
            self._begin(log.path)

    def _begin(self, path: Path) -> None:
        log = Log(path, f"s{self._number()}")
        self._logs.append(log)
        self._turn(log)
        log.write()

    def _turn(self, log: Log) -> None:
        text = self._text("answer", True).removeprefix("answer ")
        log.rest += session(log.name, [text], first=log.records + 1)
        log.records += 2
        self.records.append(f"{log.name}-{log.records}")

    def _finish(self, log: Log) -> None:
        """The last turn is over when another prompt comes."""
        log.records += 1
        log.rest += claude_line(log.name, log.records, "user", "bye")
        log.write()

    def _text(self, verb: str, answer: bool = False) -> str:
        text = f"{verb} t{self._number()}"
        if answer:
            self.texts.append(text)
        return text

    def _number(self) -> int:
        self._serial += 1
        return self._serial


def check_learned(events: Sequence[ev.Event], load: AgentLoad) -> None:
    """Every answer is learned by exactly one example; nothing else is learned, and nothing was refused."""
    accepted = [event for event in events if isinstance(event, ev.ExampleAccepted)]
    trained = [
        message.content
        for event in accepted
        for message in decode_record(bytes(event.record)).messages  # type: ignore[union-attr]
        if message.role == "assistant" and message.weight
    ]
    lost, doubled = Counter(load.texts) - Counter(trained), Counter(trained) - Counter(load.texts)
    assert not lost and not doubled, f"lost {lost}, doubled {doubled}"
    logged = Counter(record for one in accepted if one.origin.agent == "claude-code" for record in one.origin.records)
    assert logged == Counter(load.records)
    duplicates = sum(isinstance(event, ev.ExampleDuplicate) for event in events)
    assert duplicates <= load.copied, "some were read twice, and only known by their answers"
    assert not [event for event in events if isinstance(event, ev.SourceQuarantined)]
