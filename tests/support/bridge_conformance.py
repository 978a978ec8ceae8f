"""What every bridge has to pass: bits arrive, and its facts are true.

The next bridge gets a subclass of `BridgeConformance` with its name and a fixture `way` that starts its two ends as
real processes (`support.bridge_end` speaks for both; another bridge adds its kind of memory to `ENDS` there).
"""

import hashlib
import json
import os
import random
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from apollod.bridges.facts import BridgeFacts

SIZE = (1 << 20) + 6  # bytes; no multiple of a page
TESTS = Path(__file__).parents[1]
LEAVE_S = 20.0


class End:
    """A process at one end of a bridge."""

    def __init__(self, *arguments: str, descriptors: Sequence[int] = ()) -> None:
        path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.bridge_end", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
            pass_fds=descriptors,
        )  # fmt: skip

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process left with {self.process.wait(LEAVE_S)}"
        return dict(json.loads(line))

    def say(self, command: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def ask(self, *command: object) -> dict[str, Any]:
        self.say(command)
        return self.read()

    def digest(self) -> str:
        return str(self.ask("digest")["digest"])

    def write(self, offset: int, data: bytes) -> None:
        self.ask("write", offset, data.hex())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Way(ABC):
    """A bridge with an end in each of two processes; its SIZE bytes are zero at first, as far as both know."""

    facts: BridgeFacts
    engine: End
    trainer: End

    def publish(self) -> None:
        """Have the engine read what the trainer has written. In place there is nothing to do."""
        if not self.facts.in_place:
            self.trainer.ask("publish")

    @abstractmethod
    def another_trainer(self) -> End:
        """A trainer on the same engine, after the first one was killed."""

    @abstractmethod
    def release(self) -> None:
        """The engine has ended: whoever holds memory for it, other than the trainer, lets go."""


class BridgeConformance:
    """Subclasses have a fixture `way`."""

    bridge: ClassVar[str] = ""
    """its name in `bridges.facts`; empty for one that only tests have"""

    def test_the_engine_reads_what_the_trainer_wrote_bit_for_bit(self, way: Way) -> None:
        expected = bytearray(SIZE)
        chance = random.Random(12)
        anywhere = [(chance.randrange(SIZE), 70_000) for _ in range(5)]
        for start, length in ((0, 1), (SIZE - 1, 1), (4095, 2), (0, SIZE), *anywhere):
            data = chance.randbytes(min(length, SIZE - start))
            expected[start : start + len(data)] = data
            way.trainer.write(start, data)
            way.publish()
            assert way.engine.digest() == way.trainer.digest() == digest(expected), f"{len(data)} bytes at {start}"

    def test_a_write_is_seen_at_once_in_place_and_otherwise_when_it_is_published(self, way: Way) -> None:
        old, new = digest(bytes(SIZE)), digest(b"w" * SIZE)
        way.trainer.write(0, b"w" * SIZE)
        assert way.trainer.digest() == new
        assert way.engine.digest() == (new if way.facts.in_place else old)
        way.publish()
        assert way.engine.digest() == new

    def test_what_the_trainer_has_when_the_engine_is_killed(self, way: Way) -> None:
        way.trainer.write(0, b"learned")
        way.publish()
        before = way.trainer.digest()
        way.engine.kill()
        way.release()
        if way.facts.outlives_engine:
            assert way.trainer.digest() == before
            way.trainer.write(7, b" and more")
            assert way.trainer.digest() == digest(b"learned and more".ljust(SIZE, b"\0"))
        else:
            assert way.trainer.process.wait(LEAVE_S) != 0, "it went on with memory that is nobody's"

    def test_the_engine_keeps_its_weights_when_the_trainer_is_killed_and_the_next_finds_them(self, way: Way) -> None:
        way.trainer.write(0, b"published")
        way.publish()
        way.trainer.kill()
        assert way.engine.digest() == digest(b"published".ljust(SIZE, b"\0"))
        way.trainer = way.another_trainer()
        assert way.trainer.digest() == way.engine.digest()
        way.trainer.write(0, b"PUBLISHED")
        way.publish()
        assert way.engine.digest() == digest(b"PUBLISHED".ljust(SIZE, b"\0"))

    def test_requests_may_run_while_weights_are_written(self, way: Way) -> None:
        """Each element read is an old or a new one: none is torn, and no read fails."""
        if way.facts.needs_pause:
            pytest.skip("generation is paused around its writes")
        way.trainer.ask("alternate", 0.0, 0x1122, 0x3344)
        way.publish()
        way.engine.say(["watch", 1.0])
        way.trainer.say(["alternate", 0.8, 0x1122, 0x3344])
        watched, written = way.engine.read(), way.trainer.read()
        assert watched["seen"] == [0x1122, 0x3344], "only one was seen, or something that nobody wrote"
        assert watched["reads"] > 5 and written["writes"] > 5


def digest(data: bytes | bytearray) -> str:
    return hashlib.blake2b(data).hexdigest()
