"""Device memory shared by two processes through plain handles."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apollod.trainer.bind.mapped_memory import EXIT_OWNER_GONE
from apollod.wire.manifest import CudaHandle

SIZES = (300, 1 << 20, (64 << 20) + 8)  # two share a segment of torch's allocator, one has its own


class Peer:
    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("peer.py")), *arguments]
        root = str(Path(__file__).parents[2])
        env = (
            os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
            | environment
        )
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process left with {self.process.wait(30)}"
        return dict(json.loads(line))

    def ask(self, *command: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def owner() -> Iterator[Peer]:
    peer = Peer("owner", *map(str, SIZES))
    yield peer
    peer.kill()


@pytest.fixture
def trainer() -> Iterator[Peer]:
    peer = Peer("trainer")
    yield peer
    peer.kill()


def opened(trainer: Peer, handles: list[str]) -> None:
    for handle, size in zip(handles, SIZES, strict=True):
        found = trainer.ask("open", handle)
        assert found.get("bytes") == size, found


def test_both_sides_hold_the_same_bytes(owner: Peer, trainer: Peer) -> None:
    opened(trainer, owner.read()["handles"])
    for i in range(len(SIZES)):
        assert trainer.ask("digest", i) == owner.ask("digest", i)


def test_a_write_of_either_side_is_seen_by_the_other_and_by_no_neighbour(owner: Peer, trainer: Peer) -> None:
    opened(trainer, owner.read()["handles"])
    before = [owner.ask("digest", i) for i in range(len(SIZES))]
    trainer.ask("fill", 1, 7)
    assert owner.ask("digest", 1) == trainer.ask("digest", 1) != before[1]
    assert [owner.ask("digest", i) for i in (0, 2)] == [before[0], before[2]]
    owner.ask("fill", 2, 9)
    assert owner.ask("digest", 2) == trainer.ask("digest", 2) != before[2]


def test_a_second_trainer_opens_the_same_handles_after_the_first_was_killed(owner: Peer, trainer: Peer) -> None:
    handles = owner.read()["handles"]
    opened(trainer, handles)
    trainer.ask("fill", 1, 3)
    trainer.kill()
    second = Peer("trainer")
    try:
        opened(second, handles)
        assert [second.ask("digest", i) for i in range(len(SIZES))] == [
            owner.ask("digest", i) for i in range(len(SIZES))
        ]
    finally:
        second.kill()


def test_a_handle_is_opened_twice_in_one_process(owner: Peer, trainer: Peer) -> None:
    handles = owner.read()["handles"]
    opened(trainer, handles)
    opened(trainer, handles)
    trainer.ask("fill", 1, 5)
    assert trainer.ask("digest", 1) == trainer.ask("digest", len(SIZES) + 1) == owner.ask("digest", 1)


def test_a_trainer_at_work_leaves_when_the_owner_is_killed(owner: Peer, trainer: Peer) -> None:
    opened(trainer, owner.read()["handles"])
    trainer.ask("work")
    owner.kill()
    assert trainer.process.wait(20) == EXIT_OWNER_GONE


def test_an_owner_that_has_ended_is_refused(owner: Peer, trainer: Peer) -> None:
    handles = owner.read()["handles"]
    owner.kill()
    assert "has ended" in trainer.ask("open", handles[0])["refused"]


def test_another_device_is_refused(owner: Peer, trainer: Peer) -> None:
    handle = msgspec.msgpack.decode(base64.b64decode(owner.read()["handles"][0]), type=CudaHandle)
    other = msgspec.structs.replace(handle, device_uuid="GPU-00000000-0000-0000-0000-000000000000")
    assert "not visible" in trainer.ask("open", base64.b64encode(msgspec.msgpack.encode(other)).decode())["refused"]


@pytest.mark.parametrize("setting", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_memory_without_a_handle_is_refused_at_export(setting: str) -> None:
    peer = Peer("owner", "1048576", PYTORCH_CUDA_ALLOC_CONF=setting, PYTORCH_ALLOC_CONF=setting)
    try:
        assert "CUDA IPC cannot share" in peer.read()["refused"]
    finally:
        peer.kill()
