"""`shared` over device memory as a bridge: what every bridge has to pass. Not run on a GPU yet."""

from collections.abc import Iterator

import pytest
from support.bridge_conformance import SIZE, BridgeConformance, End, Way

from apollod.bridges.facts import facts
from apollod.trainer.bind.mapped_memory import EXIT_OWNER_GONE


class ByHandle(Way):
    """The engine's allocation, opened by the trainer through the handle in the manifest."""

    facts = facts("cuda-ipc")

    def __init__(self) -> None:
        self.engine = End("engine", "cuda-ipc", str(SIZE))
        self._handle = self.engine.read()["handle"]
        self.trainer = self.another_trainer()

    def another_trainer(self) -> End:
        trainer = End("trainer", "cuda-ipc", str(SIZE))
        trainer.say(self._handle)
        assert trainer.read() == {"ready": True}
        return trainer

    def release(self) -> None:
        """The memory ended with the engine."""


@pytest.fixture
def handle() -> Iterator[ByHandle]:
    way = ByHandle()
    yield way
    for end in (way.engine, way.trainer):
        end.kill()


class TestDeviceMemory(BridgeConformance):
    bridge = "cuda-ipc"

    @pytest.fixture
    def way(self, handle: ByHandle) -> Way:
        return handle


def test_the_trainer_says_by_its_exit_that_the_memory_is_gone(handle: ByHandle) -> None:
    handle.engine.kill()
    assert handle.trainer.process.wait(20) == EXIT_OWNER_GONE
