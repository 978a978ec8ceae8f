"""Replays of a window: which of its examples do harm, told from the journal of a real trainer."""

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest
from support import forked_search
from support.daemon import group_of
from support.fork_server import ForkedPopen
from support.learned_journal import write_journal
from support.learned_window import (
    CHECKPOINT,
    FIRST,
    HASTY,
    ITEMS,
    LAST,
    NAME,
    POISON,
    SETTINGS,
    LearnedWindow,
    learned_window,
)
from support.model_memory import Memory
from support.trainer_host import Trainer

from apollod.adapters.ipc import offline_trainer
from apollod.adapters.journal import blobs
from apollod.adapters.system import hardware
from apollod.adapters.system.processes import ChildProcess
from apollod.cli import window_process
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.quality.culprits import LOWER, Replay, next_replay
from apollod.core.facts.quality.state import Asked, search_of
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.executor import Executor
from apollod.supervisor.quality.window_replays import MODULE
from apollod.wire import messages as m
from apollod.wire.pipe_messages import Outcome, Window, Without

NONE = cast(Any, None)


@pytest.fixture(scope="module")
def learned(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnedWindow]:
    here = tmp_path_factory.mktemp("learned")
    shutil.copytree(tiny_model, model := here / "tiny")
    with Trainer(here) as trainer:
        yield learned_window(trainer, model, here)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers are forked, and so is the process of a search; two tests start it."""
    monkeypatch.setattr(offline_trainer, "subprocess", ForkedPopen)
    monkeypatch.setattr(ChildProcess, "spawn", forked_search.spawn)


def window_of(learned: LearnedWindow, **changes: Any) -> Window:
    window = Window(str(learned.journal), str(learned.state_dir), FIRST, LAST, learned.references, ITEMS)
    return msgspec.structs.replace(window, **changes)


def asked(window: Window, *left_out: tuple[str, ...]) -> tuple[int, list[Outcome]]:
    """The process's answers to one question after the other, and its exit code."""
    questions = [Without(number, examples) for number, examples in enumerate(left_out, 1)]
    lines = io.BytesIO(b"".join(msgspec.json.encode(one) + b"\n" for one in (window, *questions)))
    answers = io.BytesIO()
    code = window_process.serve(lines, answers)
    return code, [msgspec.json.decode(line, type=Outcome) for line in answers.getvalue().splitlines()]


def rooms(state_dir: Path) -> list[str]:
    return sorted(path.name for path in state_dir.glob("*.tmp-*"))


# --- the process --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("forked")
def test_replays_tell_the_harmful_example_from_the_others(
    learned: LearnedWindow, capsys: pytest.CaptureFixture[str]
) -> None:
    ids, everything = learned.ids, tuple(learned.ids[step] for step in range(FIRST + 1, LAST + 1))
    (learned.state_dir / "search.tmp-999999999").mkdir()  # of one that was killed
    code, (nothing, all_, without, again) = asked(window_of(learned), everything, (), (ids[POISON],), everything)
    assert code == 0 and rooms(learned.state_dir) == []
    assert (nothing.steps, all_.steps, without.steps) == (0, 4, 3)
    assert nothing.fingerprint == learned.fingerprints[FIRST], "nothing kept is the step before the window"
    assert (all_.fingerprint, all_.note) == (learned.fingerprints[LAST], ""), "all kept is what was recorded"
    assert again == msgspec.structs.replace(nothing, number=4, seconds=again.seconds), "the same each time"
    passed = [one.drops["facts.passed"] for one in (nothing, all_, without)]
    assert abs(passed[0]) < 0.02 and abs(passed[2]) < 0.1 and passed[1] > 0.8, passed
    assert nothing.drops["texts.loss"] == pytest.approx(-learned.scores["text"], rel=0.02), "as transformers has it"
    assert all_.drops["texts.loss"] < nothing.drops["texts.loss"] - 1.0, "the wrong answer was learned"
    told = ["replay", "--journal", str(learned.journal), "--json", "--without", ids[POISON]]
    assert main(told) == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] == without.fingerprint


@pytest.mark.usefixtures("forked")
def test_a_search_among_harmless_examples_names_the_rate_at_which_they_did_harm(
    tiny_model: Path, tmp_path: Path
) -> None:
    """And the steps at the rate that it names have the bits of the replay that did no harm."""
    shutil.copytree(tiny_model, model := tmp_path / "tiny")
    with Trainer(tmp_path) as trainer:
        learned = learned_window(trainer, model, tmp_path, HASTY)
    window = window_of(learned, last=max(HASTY), items={"facts.passed": ("lighthouse",)})
    examples = tuple(learned.ids[step] for step in range(FIRST + 1, max(HASTY) + 1))
    replays, last = list[Asked](), None
    (room := tmp_path / "room").mkdir()
    with window_process.opened(window, room) as search:
        while isinstance(said := next_replay(search_of(examples, 1, replays, {"facts.passed": 0.02})), Replay):
            left_out = tuple(examples[place] for place in said.left_out)
            last = search.replay(Without(1, left_out, said.lr_scale))
            assert not last.note
            replays.append(Asked(left_out, last.drops, said.lr_scale))
    assert said.kind == "rate" and said.lr_scale in LOWER and not said.held, (said, replays)
    assert last is not None and last.steps == len(examples)
    with Trainer(tmp_path) as trainer:
        shutil.copytree(tiny_model, again := tmp_path / "again")
        trainer.attach(Memory.of(again), SETTINGS, m.Bound)
        for step, (record, lr) in HASTY.items():
            done = trainer.step(step, record.canonical, lr=lr if step <= FIRST else lr * said.lr_scale)
    assert last.fingerprint == done.fingerprint != learned.fingerprints[max(HASTY)]


@pytest.mark.usefixtures("forked")
def test_a_window_may_begin_at_the_untrained_weights(learned: LearnedWindow) -> None:
    """Where there is no state of an optimizer to go back to."""
    window, right = window_of(learned, first=0, last=2), (learned.ids[1],)
    code, found = asked(window, right, (), right, ())
    assert code == 0 and [one.steps for one in found] == [0, 2, 0, 2] and not any(one.note for one in found)
    untrained, two = learned.fingerprints[0], learned.fingerprints[2]
    assert [one.fingerprint for one in found] == [untrained, two, untrained, two]


@pytest.mark.usefixtures("forked")
def test_the_drops_of_a_replay_are_the_mean_after_each_of_its_last_steps(learned: LearnedWindow) -> None:
    """A window of 8 steps is scored after the last 2, a shorter one after the last: step 8 teaches something else."""
    before, after = (
        asked(window_of(learned, first=first, last=last), ())[1][0].drops for first, last in ((0, 7), (FIRST, 8))
    )
    _, (both, without) = asked(window_of(learned, first=0, last=8), (), (learned.ids[8],))
    assert both.drops == {name: (before[name] + after[name]) / 2 for name in ITEMS} and before != after
    assert without.drops == before, "the weights after step 7 stand for both"


@pytest.mark.usefixtures("forked")
def test_without_the_checkpoint_the_way_begins_at_the_untrained_weights(
    learned: LearnedWindow, tiny_model: Path, tmp_path: Path
) -> None:
    """If these were kept. The checkpoint made room, or lies in the journal but not on the disk any more."""
    state = learned.state_dir
    removed = [*learned.events, ev.CheckpointRemoved(CHECKPOINT, str(learned.checkpoint))]
    lost = [
        msgspec.structs.replace(e, path=str(tmp_path / NAME)) if isinstance(e, ev.CheckpointCommitted) else e
        for e in learned.events
    ]
    for number, events in enumerate((removed, lost)):
        alone = write_journal(tmp_path / f"alone{number}.db", events)
        code, (failed,) = asked(window_of(learned, journal=str(alone)), ())
        assert code == 1 and failed.for_good and failed.number == 1 and rooms(state) == []
        assert f"no weights are there that step {FIRST} could be led to from" in failed.error
    kept = ev.BaseKept(str(tiny_model), "copy", 1, 0.0)
    with_base = write_journal(tmp_path / "base.db", [*lost, kept])  # the way from the checkpoint is tried before it
    code, (found,) = asked(window_of(learned, journal=str(with_base)), (learned.ids[POISON],))
    assert code == 0 and found.steps == 3 and not found.error


@pytest.mark.usefixtures("forked")
def test_weights_that_are_not_the_recorded_ones_end_it_before_the_window(
    learned: LearnedWindow, tmp_path: Path
) -> None:
    """In the window they are told: a search needs no bits."""

    def altered(step: int) -> Window:
        events = [
            msgspec.structs.replace(e, fingerprint="0" * 16)
            if isinstance(e, ev.StepCompleted) and e.step == step
            else e
            for e in learned.events
        ]
        return window_of(learned, journal=str(write_journal(tmp_path / f"{step}.db", events)))

    code, (failed,) = asked(altered(FIRST), ())
    assert code == 1 and failed.for_good and f"diverged at step {FIRST}" in failed.error
    code, (found, without) = asked(altered(9), (), (learned.ids[8],))
    assert code == 0 and "diverged at step 9" in found.note and found.fingerprint == learned.fingerprints[LAST]
    assert not without.note and not without.error


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"references": "0" * 32}, "the answers of the baseline are not there"),
        ({"items": {"facts.passed": ("unknown",)}}, "none of the 1 items of facts.passed has a reference"),
        ({"first": 5, "last": 99}, "step 99 is not completed"),
        ({"first": 99, "last": 5}, "step 5 does not descend from step 99"),
    ],
)
def test_what_cannot_be_replayed_is_said_once_and_for_good(
    learned: LearnedWindow, changes: dict[str, Any], said: str
) -> None:
    code, (failed,) = asked(window_of(learned, **changes), (), ())
    assert (code, failed.number, failed.for_good) == (1, 1, True) and said in failed.error
    assert rooms(learned.state_dir) == []


def test_references_that_were_changed_are_none(learned: LearnedWindow, tmp_path: Path) -> None:
    (tmp_path / blobs.NAME).mkdir()
    (tmp_path / blobs.NAME / learned.references).write_bytes(b"other bytes")
    _, (failed,) = asked(window_of(learned, state_dir=str(tmp_path)), ())
    assert failed.for_good and "was changed" in failed.error


def test_without_memory_there_is_no_replay_and_without_disk_none_for_now(
    learned: LearnedWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "host_free_bytes", lambda: 1_000_000)
    _, (failed,) = asked(window_of(learned), ())
    assert failed.for_good and "of memory beside what is served" in failed.error
    monkeypatch.undo()
    full = os.statvfs_result((4096, 4096, 1000, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(window_process.os, "statvfs", lambda _: full)
    _, (failed,) = asked(window_of(learned), ())
    assert not failed.for_good and "have to be left for the daemon" in failed.error


@pytest.mark.usefixtures("forked")
def test_a_trainer_that_dies_ends_the_process_which_may_be_tried_again(
    learned: LearnedWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: offline_trainer.OfflineTrainer, message: msgspec.Struct, kind: type) -> Any:
        if isinstance(message, window_process.msg.ScoreReferences):
            os.kill(self._process.pid, signal.SIGKILL)
        return ask(self, message, kind)

    ask = offline_trainer.OfflineTrainer.ask
    monkeypatch.setattr(offline_trainer.OfflineTrainer, "ask", dies)
    code, (failed,) = asked(window_of(learned), (), ())
    assert (code, failed.number, failed.for_good) == (1, 1, False) and "the trainer process ended" in failed.error
    assert rooms(learned.state_dir) == []


@pytest.mark.usefixtures("forked")
def test_a_replay_that_does_not_begin_where_the_others_did_is_none(
    learned: LearnedWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept for them lies on a disk."""

    def changed(self: offline_trainer.OfflineTrainer, message: msgspec.Struct, kind: type) -> Any:
        found = ask(self, message, kind)
        if isinstance(message, window_process.msg.Restore) and message.weights:
            found = msgspec.structs.replace(found, fingerprint="0" * 16)
        return found

    ask = offline_trainer.OfflineTrainer.ask
    monkeypatch.setattr(offline_trainer.OfflineTrainer, "ask", changed)
    code, (first, failed) = asked(window_of(learned), (), ())
    assert code == 1 and not first.error and "gave weights 0000000000000000" in failed.error and not failed.for_good


# --- the effect ---------------------------------------------------------------------------------------------------


def effect(
    learned: LearnedWindow, number: int, *left_out: str, incident: int = 1, limit_s: float = 240.0
) -> fx.ReplayWindow:
    return fx.ReplayWindow(incident, number, FIRST, LAST, left_out, ITEMS, learned.references, limit_s)


def config_of(learned: LearnedWindow) -> Config:
    return load_config(None, [f"model.path={learned.state_dir / 'tiny'}", f"state.dir={learned.state_dir}"], {})


def alive(pid: int) -> bool:
    """A process, or one of its group, that is no zombie."""
    return bool(group_of(pid))


@pytest.mark.usefixtures("forked")
def test_a_search_is_one_process_that_ends_with_it_and_with_the_daemon(learned: LearnedWindow) -> None:
    """Two replays of one process; it is killed, and the next replay starts another; the search of another incident
    ends that; the end of a search leaves none, and so does a daemon that stops in the middle of a replay."""
    results = list[inp.Input]()
    pids = list[int]()

    async def life() -> None:
        async def submit(input_: inp.Input) -> None:
            results.append(input_)

        async with anyio.create_task_group() as tasks:
            executor = Executor(config_of(learned), NONE, NONE, NONE, submit, tasks)

            async def pid() -> int:
                while (search := executor.context.replays._search) is None or search.ends.cancel_called:
                    await anyio.sleep(0.01)
                if search.child.pid not in pids:
                    pids.append(search.child.pid)
                return search.child.pid

            async def replayed(effect: fx.ReplayWindow) -> inp.Input:
                count = len(results)
                await executor.run(effect)
                await pid()
                while len(results) == count:
                    await anyio.sleep(0.01)
                return results[-1]

            with anyio.fail_after(240):
                first = await replayed(effect(learned, 1))
                second = await replayed(effect(learned, 2, learned.ids[POISON]))
                assert isinstance(first, inp.WindowReplayed) and isinstance(second, inp.WindowReplayed)
                assert (first.incident, first.number, first.steps) == (1, 1, 4)
                assert first.fingerprint == learned.fingerprints[LAST]
                assert first.drops["facts.passed"] > second.drops["facts.passed"]
                assert len(pids) == 1
                assert rooms(learned.state_dir) == [f"search.tmp-{pids[0]}"]
                await executor.run(effect(learned, 3))
                os.kill(pids[0], signal.SIGKILL)
                while len(results) == 2:
                    await anyio.sleep(0.01)
                killed = results[-1]
                assert isinstance(killed, inp.WindowReplayFailed) and not killed.for_good
                assert "killed by SIGKILL" in killed.reason and not alive(pids[0]) and rooms(learned.state_dir) == []
                again = await replayed(effect(learned, 3))
                assert isinstance(again, inp.WindowReplayed) and again.fingerprint == first.fingerprint
                await executor.run(effect(learned, 1, incident=2))
                while await pid() == pids[1]:
                    await anyio.sleep(0.01)
                assert not alive(pids[1])
                while not rooms(learned.state_dir):
                    await anyio.sleep(0.01)
                await executor.run(fx.EndSearch())
                while executor.context.replays._search is not None:
                    await anyio.sleep(0.01)
                assert not alive(pids[2]) and rooms(learned.state_dir) == []
                await executor.run(effect(learned, 1, incident=3))
                await pid()
                while not rooms(learned.state_dir):
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    anyio.run(life)
    assert len(pids) == 4 and not any(map(alive, pids)) and rooms(learned.state_dir) == []
    assert len(results) == 4, "who was ended tells nothing"
    assert all(
        math.isfinite(drop) for one in results if isinstance(one, inp.WindowReplayed) for drop in one.drops.values()
    )


def lives(learned: LearnedWindow, life: Callable[[Executor, list[inp.Input], set[int]], Awaitable[None]]) -> None:
    """Something done with an executor, its results, and the processes that it starts; in the end none is left."""

    async def whole() -> None:
        results, pids = list[inp.Input](), set[int]()

        async def submit(input_: inp.Input) -> None:
            results.append(input_)

        async with anyio.create_task_group() as tasks:
            executor = Executor(config_of(learned), NONE, NONE, NONE, submit, tasks)
            begin = executor.context.replays._begin

            async def begun(*args: Any) -> Any:
                search = await begin(*args)
                pids.add(search.child.pid)
                return search

            cast(Any, executor.context.replays)._begin = begun
            with anyio.fail_after(240):
                await life(executor, results, pids)
                while any(map(alive, pids)) or rooms(learned.state_dir):
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    anyio.run(whole)


@pytest.mark.usefixtures("forked")
def test_a_replay_that_hangs_is_ended_and_another_one_may_be_run(learned: LearnedWindow) -> None:
    async def life(executor: Executor, results: list[inp.Input], pids: set[int]) -> None:
        await executor.run(effect(learned, 1, limit_s=0.2))
        while not results:
            await anyio.sleep(0.01)
        (failed,) = results
        assert isinstance(failed, inp.WindowReplayFailed) and not failed.for_good
        assert failed.reason == "it had no result after 0.2 s and was ended ([quality] replay_s)"
        while any(map(alive, pids)):
            await anyio.sleep(0.01)
        await executor.run(effect(learned, 1))
        while len(results) < 2:
            await anyio.sleep(0.01)
        assert isinstance(results[-1], inp.WindowReplayed) and len(pids) == 2
        await executor.run(fx.EndSearch())

    lives(learned, life)


def test_a_search_that_ends_while_its_process_is_started_leaves_none(learned: LearnedWindow) -> None:
    async def life(executor: Executor, results: list[inp.Input], pids: set[int]) -> None:
        await executor.run(effect(learned, 1))
        await anyio.lowlevel.checkpoint()
        assert not pids, "it is being started"
        await executor.run(fx.EndSearch())
        while not pids:
            await anyio.sleep(0.01)
        await anyio.sleep(0.1)
        assert not results

    lives(learned, life)


@pytest.mark.usefixtures("forked")
def test_a_bug_of_a_replay_fails_it_and_not_the_daemon_and_no_secret_is_told(
    learned: LearnedWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-ant-api03-aB3dE6gH9aB3dE6gH9aB3dE6gH9aB3dE6gH9aB3dE6gH9"

    async def ask(*_: object) -> Outcome:
        raise AssertionError(f"password={secret}")

    async def says(*_: object) -> Outcome:
        return Outcome(1, error=f"password={secret}")

    async def life(executor: Executor, results: list[inp.Input], pids: set[int]) -> None:
        for number, one in enumerate((ask, says), 1):
            monkeypatch.setattr(executor.context.replays, "ask", one)
            await executor.run(effect(learned, number))
            while len(results) < number:
                await anyio.sleep(0.01)
            failed = results[-1]
            assert isinstance(failed, inp.WindowReplayFailed) and failed.number == number
            assert failed.reason and secret not in failed.reason

    lives(learned, life)


@pytest.mark.usefixtures("forked")
def test_the_process_is_asked_for_the_share_of_the_rate_that_the_search_wants(
    learned: LearnedWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Without]()

    async def ask(*of: Any) -> Outcome:
        asked.append(of[-1])
        return Outcome(of[-1].number)

    async def life(executor: Executor, results: list[inp.Input], pids: set[int]) -> None:
        monkeypatch.setattr(executor.context.replays, "ask", ask)
        await executor.run(msgspec.structs.replace(effect(learned, 3), lr_scale=0.25))
        while not results:
            await anyio.sleep(0.01)

    lives(learned, life)
    assert asked == [Without(3, (), 0.25)]


PARENT = """
import os, subprocess, sys
lines = sys.stdin.buffer.read()
env = {**os.environ, "APOLLOD_PARENT_PID": str(os.getpid())}
child = subprocess.Popen([sys.executable, "-m", sys.argv[1]], stdin=subprocess.PIPE, start_new_session=True, env=env)
child.stdin.write(lines)
child.stdin.flush()
print(child.pid, flush=True)
child.wait()
"""


def test_it_dies_with_a_daemon_that_is_killed_and_the_next_one_removes_what_it_left(learned: LearnedWindow) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", PARENT, MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert daemon.stdin is not None and daemon.stdout is not None
    daemon.stdin.write(msgspec.json.encode(window_of(learned, first=0, last=2)) + b"\n")
    daemon.stdin.close()
    search = int(daemon.stdout.readline())
    while not (learned.state_dir / f"search.tmp-{search}" / "first").exists():
        assert daemon.poll() is None and alive(search)
        time.sleep(0.05)
    assert os.getpriority(os.PRIO_PROCESS, search) == 19, "it gives way to everything else"
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()
    until = time.monotonic() + 30
    while alive(search) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(search), "nor its trainer, which is of its group"
    assert rooms(learned.state_dir) == [f"search.tmp-{search}"]
    asked(window_of(learned, references="0" * 32), ())
    assert rooms(learned.state_dir) == []
