"""Effects by key: what is under way is not begun again, the rest runs side by side. And every effect is executed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
import pytest

from apollod.bridges.facts import BRIDGES, BridgeFacts
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import DreamCheckFailed, DreamNonsense, LlmRefused, SeedsUnreadable, VerdictNonsense
from apollod.supervisor.config import load_config
from apollod.supervisor.executor import Executor, child_effects, dispatch
from apollod.supervisor.executor.context import REASON_MAX, Background, UnderWay, failure_of
from apollod.wire import messages as msg
from apollod.wire.engine_terms import OURS
from apollod.wire.manifest import Manifest

EFFECTS = sorted(fx.Effect.__subclasses__(), key=lambda effect: effect.__name__)
NONE = cast(Any, None)


# --- nothing is forgotten -------------------------------------------------------------------------------------------


def test_somebody_executes_every_effect() -> None:
    assert {effect.__name__ for effect in EFFECTS} == {effect.__name__ for effect in dispatch.HANDLERS}


def test_no_effect_is_executed_by_two_subjects() -> None:
    assert sum(len(subject.HANDLERS) for subject in dispatch.SUBJECTS) == len(dispatch.HANDLERS)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.__name__)
def test_what_distinguishes_an_effect_is_a_field_of_it(effect: type[fx.Effect]) -> None:
    assert set(effect.distinguished_by) <= set(effect.__struct_fields__)


def test_keys() -> None:
    step = fx.RunStep(3, ("a",), ("d",), 1e-5)
    assert fx.SpawnTrainer().key() == "SpawnTrainer"
    assert fx.RunHook(1, "/c", "f").key() == fx.RunHook(1, "/c", "g").key() == "RunHook path='/c'"
    assert fx.PlanRollback(1, 4, {}).key() == fx.PlanRollback(1, 4, {1: "/c"}).key() != fx.PlanRollback(2, 4, {}).key()
    pauses = [fx.PauseEngine(step, 7, True, 60.0), fx.PauseEngine(step, 7, True, 60.0, attempt=2)]
    pauses += [fx.PauseEngine(step, 8, True, 60.0)]
    pauses += [fx.PauseEngine(msgspec.structs.replace(step, step=4), 7, True, 60.0)]
    assert len({pause.key() for pause in pauses}) == 4


# --- the engine is up -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BRIDGES)
def test_the_core_is_told_what_is_true_of_the_bridge(name: Any, tmp_path: Path) -> None:
    child = SimpleNamespace(process=SimpleNamespace(pid=7), versions={"vllm": "1"}, plan=None)
    config = load_config(None, environ={"APOLLOD_MODEL__PATH": str(tmp_path)})
    up = child_effects.engine_ready(config, cast(Any, child), msg.Loaded(Manifest("/m", name, (), ()), 1.5))
    assert up.bridge == name
    assert {fact: getattr(up, fact) for fact in BridgeFacts.__struct_fields__} == msgspec.structs.asdict(BRIDGES[name])


# --- under way ------------------------------------------------------------------------------------------------------


class World:
    """An executor whose effects of one type last until `work` is set, and a loop that takes results once `loop` is."""

    def __init__(self, tasks: Any) -> None:
        self.begun: list[str] = []
        self.taken: list[inp.Input] = []
        self.work = anyio.Event()
        self.loop = anyio.Event()
        self.executor = Executor(NONE, NONE, NONE, NONE, self._submit, tasks)

    async def _submit(self, input_: inp.Input) -> None:
        await self.loop.wait()
        self.taken.append(input_)

    async def observe(self, _context: Any, effect: fx.ObserveCheckpoint) -> inp.CheckpointWritten:
        self.begun.append(effect.path)
        await self.work.wait()
        return inp.CheckpointWritten(effect.step, effect.path, "f", 0, 0.0)

    async def ask(self, *paths: str) -> None:
        """Run the effect for each path, and see what begins at once."""
        for path in paths:
            await self.executor.run(fx.ObserveCheckpoint(1, path))
        await anyio.wait_all_tasks_blocked()


@asynccontextmanager
async def world(monkeypatch: pytest.MonkeyPatch, limit: int = 0) -> AsyncIterator[World]:
    async with anyio.create_task_group() as tasks:
        it = World(tasks)
        monkeypatch.setattr(dispatch, "HANDLERS", {fx.ObserveCheckpoint: Background(it.observe, limit)})
        with anyio.fail_after(120):
            yield it
        tasks.cancel_scope.cancel()


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    anyio.run(scenario)


def test_a_key_is_free_only_when_the_result_has_taken_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of the work and the event that says so, the state still asks for it."""

    async def main() -> None:
        async with world(monkeypatch) as it:
            await it.ask("/a", "/a")
            assert it.begun == ["/a"]
            it.work.set()
            await it.ask("/a")
            assert it.begun == ["/a"] and not it.taken, "it has ended, but nobody took note of it"
            it.loop.set()
            await it.ask("/a")
            await anyio.wait_all_tasks_blocked()
            await it.ask("/a")
            assert it.begun == ["/a", "/a"]

    play(main)


def test_two_keys_of_one_type_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with world(monkeypatch) as it:
            it.loop.set()
            await it.ask("/a", "/b", "/a", "/b")
            assert it.begun == ["/a", "/b"]
            it.work.set()
            await anyio.wait_all_tasks_blocked()
            assert sorted(cast(inp.CheckpointWritten, one).path for one in it.taken) == ["/a", "/b"]

    play(main)


def test_a_limit_holds_over_all_keys_of_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with world(monkeypatch, limit=2) as it:
            it.loop.set()
            await it.ask("/a", "/b", "/c")
            assert it.begun == ["/a", "/b"]
            it.work.set()
            await anyio.wait_all_tasks_blocked()
            await it.ask("/c")
            assert it.begun == ["/a", "/b", "/c"], "it was dropped, not queued, and is asked for again"

    play(main)


def test_hooks_run_one_at_a_time_whatever_checkpoint_they_are_for() -> None:
    hook = dispatch.HANDLERS[fx.RunHook]
    assert isinstance(hook, Background) and hook.limit == 1


def test_what_was_cancelled_tells_nothing_and_may_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with world(monkeypatch) as it:
            it.loop.set()
            await it.ask("/a", "/b")
            it.executor.context.under_way.cancel(fx.ObserveCheckpoint(1, "/a").key())
            it.executor.context.under_way.cancel("nothing has this key")
            await anyio.wait_all_tasks_blocked()
            await it.ask("/a")
            assert it.begun == ["/a", "/b", "/a"]
            it.work.set()
            await anyio.wait_all_tasks_blocked()
            assert sorted(cast(inp.CheckpointWritten, one).path for one in it.taken) == ["/a", "/b"]

    play(main)


def test_what_raises_ends_the_daemon_and_not_only_its_task() -> None:
    async def main() -> None:
        async def work() -> None:
            raise RuntimeError("a bug")

        async with anyio.create_task_group() as tasks:
            UnderWay(tasks).begin("key", work)

    with pytest.raises(ExceptionGroup, match="unhandled") as caught:
        play(main)
    assert isinstance(caught.value.exceptions[0], RuntimeError)


# --- a comparison's answer from the engine --------------------------------------------------------------------------


def test_an_engine_that_is_late_is_reported_and_whose_answer_nobody_wants_is_hung_up_on(tmp_path: Path) -> None:
    """A server that takes the question and never answers."""

    async def main() -> None:
        asked, hung_up, posted, sent = anyio.Event(), anyio.Event(), list[inp.Input](), list[bytes]()

        async def serve(client: Any) -> None:
            async with client:
                try:
                    while True:
                        sent.append(await client.receive())
                        asked.set()
                except anyio.EndOfStream:
                    hung_up.set()

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        environ = {"APOLLOD_MODEL__PATH": str(tmp_path), "APOLLOD_ENGINE__PORT": str(port)}
        api = SimpleNamespace(settled=anyio.lowlevel.checkpoint)
        children = cast(Any, SimpleNamespace(engine=SimpleNamespace(api=api)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            config = load_config(None, environ=environ)
            executor = Executor(config, NONE, children, posted.append, NONE, tasks)
            with anyio.fail_after(120):
                await executor.run(fx.ScoreProbe(3, 7, (1, 2), (-1.0,), 0.1, patience_s=0.05))
                while not posted:
                    await anyio.sleep(0.01)
                await asked.wait()
                assert posted == [inp.ScoreLate(7)] and not hung_up.is_set(), "it goes on"
                assert f"{OURS}: 1".encode() in sent[0].lower(), "nobody takes it for a user's"
                await asked.wait()  # on a busy machine the client is still being imported
                await executor.run(fx.DropScore(8))
                await anyio.wait_all_tasks_blocked()
                assert not hung_up.is_set(), "another one's"
                await executor.run(fx.DropScore(7))
                await hung_up.wait()
            tasks.cancel_scope.cancel()

    play(main)


@pytest.mark.parametrize(
    ("args", "asked", "told"),
    [
        ((), 0, 0),
        (("--max-model-len", "256"), 0, 255),
        (("--max-model-len=4k",), 256, 256),
        (("--max-model-len", "64"), 128, 63),
    ],
)
def test_a_probe_leaves_the_engine_room_for_a_token(args: tuple[str, ...], asked: int, told: int) -> None:
    said: list[Any] = []

    async def main() -> None:
        listed = ", ".join(f'"{one}"' for one in args)
        config = load_config(None, ["model.path=/m", f"engine.args=[{listed}]"], environ={})
        async with anyio.create_task_group() as tasks:
            children = cast(Any, SimpleNamespace(tell_trainer=said.append))
            await Executor(config, NONE, children, NONE, NONE, tasks).run(fx.ProbeTrainer(1, 2, asked))

    anyio.run(main)
    assert said[0].tokens == told


# --- failed questions -----------------------------------------------------------------------------------------------


SECRET = "sk-ant-api03-" + "aB3dE6gH9" * 11


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (DreamNonsense(f"it begins with {SECRET}"), "nonsense"),
        (VerdictNonsense(f"the quote {SECRET} is not in what was judged"), "nonsense"),
        (LlmRefused("http://e", 400, f"what is {SECRET}?"), "refused"),
        (LlmRefused("http://e", 500, f"what is {SECRET}?"), "endpoint"),
        (DreamCheckFailed(f"check ended with 2: {SECRET}"), "check"),
        (SeedsUnreadable(f"there is no seed in {SECRET}"), "seeds"),
        (OSError(5, f"{SECRET} is gone"), "endpoint"),
        (KeyError(SECRET), "nonsense"),
    ],
)
def test_no_secret_is_in_what_is_recorded_of_a_failure(error: Exception, cause: str) -> None:
    found = failure_of(error)
    assert found.cause == cause and "aB3dE6gH9" not in found.reason and "[redacted " in found.reason


def test_a_bug_is_told_by_its_class_in_one_line_that_is_bounded() -> None:
    assert failure_of(ValueError("no\nsuch thing")).reason == "ValueError: no such thing"
    assert len(failure_of(ValueError("x" * 1_000_000)).reason) == REASON_MAX


# --- removed checkpoints --------------------------------------------------------------------------------------------


async def remove(directory: Path, *steps: int, end_at_once: bool = False) -> None:
    """A life of the daemon that removes these checkpoints one after the other."""
    none = cast(Any, None)
    async with anyio.create_task_group() as tasks:
        executor = Executor(none, none, none, none, none, tasks)
        for step in steps:
            await executor.run(fx.RemoveCheckpoint(str(directory / f"step-{step}")))
        if end_at_once:
            tasks.cancel_scope.cancel()


def checkpoints(directory: Path, count: int) -> Path:
    for step in range(1, count + 1):
        (directory / f"step-{step}").mkdir(parents=True)
        (directory / f"step-{step}" / "weights").write_bytes(b"w" * 100)
    return directory


def test_several_that_were_begun_are_removed_by_the_next_life(tmp_path: Path) -> None:
    place = checkpoints(tmp_path / "checkpoints", 5)
    anyio.run(lambda: remove(place, 1, 2, 3, end_at_once=True))
    assert sorted(path.name for path in place.iterdir() if path.name.startswith("step-")) == ["step-4", "step-5"]
    assert list(place.glob(".*/*/weights")), "it was to end before all of their bytes were gone"
    anyio.run(lambda: remove(place, 3))  # what recovery asks for at the start
    assert sorted(path.name for path in place.iterdir()) == ["step-4", "step-5"]


def test_a_path_may_be_used_again_at_once(tmp_path: Path) -> None:
    place = checkpoints(tmp_path / "checkpoints", 1)

    async def again() -> None:
        none = cast(Any, None)
        async with anyio.create_task_group() as tasks:
            executor = Executor(none, none, none, none, none, tasks)
            await executor.run(fx.RemoveCheckpoint(str(place / "step-1")))
            checkpoints(place, 1)

    anyio.run(again)
    assert [path.name for path in place.iterdir()] == ["step-1"] and (place / "step-1" / "weights").exists()


def test_one_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    anyio.run(lambda: remove(checkpoints(tmp_path / "checkpoints", 1), 7))
    anyio.run(lambda: remove(tmp_path / "nothing", 1))
    assert (tmp_path / "checkpoints" / "step-1").exists()
