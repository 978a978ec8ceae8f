"""Replays of one window for the daemon's search for culprits: `python -m apollod.cli.window_process`, started by the
supervisor (wire/pipe_messages.py describes requests and answers).

All replays share one beginning: the steps up to the window are run, must give the recorded bits, and the weights and
optimizer after them are kept in a directory `search.tmp-PID` of the state directory. Each replay goes back there,
runs the steps of the window that have an example left, and scores the baseline's answers after some of the last steps.
"""

import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from apollod.adapters.ipc.offline_trainer import OfflineTrainer
from apollod.adapters.journal import blobs
from apollod.adapters.system import hardware
from apollod.adapters.system.files import of_this_process, remove_of_the_dead
from apollod.adapters.system.own_process import die_with_supervisor, yield_to_others
from apollod.cli.replay_plan import Plan, Planned, Start, device_of, origins, read_plan, start_of
from apollod.cli.replay_steps import Replaying, most_examples, most_tokens, threads_of, told
from apollod.core.facts.quality.state import mean, scored_after
from apollod.curation.probes.references import Reference, known_items, quality_drops, read_references
from apollod.errors import ApolloError, CheckpointError, RecordRefused, ReplayError, ReplayHopeless
from apollod.explain import line_of, reason
from apollod.model.memory_plan import lacking_disk, lacking_memory
from apollod.supervisor import memory_budget
from apollod.wire import messages as msg
from apollod.wire.pipe_messages import SEARCH_ROOM, Outcome, Window, Without
from apollod.wire.teacher import digest_of


class Search:
    """A window that can be replayed any number of times."""

    def __init__(
        self, window: Window, trainer: OfflineTrainer, replaying: Replaying, steps: list[Planned],
        references: dict[str, Reference],
    ) -> None:  # fmt: skip
        self._window, self._trainer, self._replaying, self._steps = window, trainer, replaying, steps
        self._references, self._items = references, known_items(references, window.items)
        self._fresh = True

    def replay(self, asked: Without) -> Outcome:
        """Replay once. Raises ReplayError if the trainer stops."""
        began = time.monotonic()
        if not self._fresh:
            self._replaying.back()
        self._fresh = False
        after, drops, before = scored_after(len(self._steps)), list[dict[str, float]](), ""
        left_out, first = frozenset(asked.left_out), self._window.first
        for number, result in enumerate(self._replaying.each(self._steps, left_out, first, True, asked.lr_scale)):
            if number not in after:
                continue
            is_scored = before == result.fingerprint  # a step that is left out leaves the weights as they were
            drops.append(drops[-1] if is_scored else self._drops())
            before = result.fingerprint
        note = ""
        if result.divergence is not None:
            note = told(result.divergence, result.verified_until).splitlines()[0]
        return Outcome(asked.number, mean(drops), result.steps, time.monotonic() - began, result.fingerprint, note)

    def _drops(self) -> dict[str, float]:
        tokens = [msg.ReferenceTokens(*self._references[id_].scored(deciding)) for id_, deciding in self._items]
        found = self._trainer.ask(msg.ScoreReferences(tokens), msg.ReferencesScored).logprobs
        now = {item: math.nan if one is None else one for item, one in zip(self._items, found, strict=True)}
        return quality_drops(self._references, self._window.items, now)


@contextmanager
def opened(window: Window, room: Path) -> Iterator[Search]:
    """Make the shared beginning of replays; `room` is an empty directory for it. Raises ReplayHopeless if another try
    would not help, else ApolloError or OSError."""
    references = _references(window)
    with ExitStack() as until_there:
        plan, start = until_there.enter_context(_begun(window, room))
        with OfflineTrainer(threads_of(plan)) as trainer:
            replaying = Replaying(trainer, window.journal, plan, start)
            before = [step for step in plan.steps if step.started.step <= window.first]
            done = replaying.run(before, (), plan.origin.step)
            if done.divergence is not None:
                raise ReplayHopeless(told(done.divergence, done.verified_until).splitlines()[0])
            replaying.keep(window.first, room / "first")
            until_there.close()
            yield Search(window, trainer, replaying, plan.steps[len(before) :], references)


def _references(window: Window) -> dict[str, Reference]:
    path = Path(window.state_dir) / blobs.NAME / window.references
    try:
        blob = path.read_bytes()
        if (found := digest_of(blob)) != window.references:
            raise RecordRefused(f"{path} was changed, it is {found} now", "put it back, or measure the baseline again")
        references = read_references(blob)
        known_items(references, window.items)
    except RecordRefused as error:
        raise ReplayHopeless(str(error), error.hint) from error
    except FileNotFoundError as error:
        raise ReplayHopeless(
            f"the answers of the baseline are not there: {path}", "measure it again: apollod ctl quality baseline"
        ) from error
    return references


@contextmanager
def _begun(window: Window, room: Path) -> Iterator[tuple[Plan, Start]]:
    """Plan and weights from the newest origin before the window that is still available. Raises ReplayHopeless."""
    reasons = list[str]()
    with ExitStack() as stack:
        for origin in _ways(window):
            plan = read_plan(window.journal, origin, window.last, None)
            _check_room(plan, Path(window.state_dir))
            try:
                start = stack.enter_context(start_of(plan.origin, room))
            except (CheckpointError, ReplayError) as error:
                reasons.append(str(error))
                continue
            yield plan, start
            return
    raise ReplayHopeless(
        f"no weights are there that step {window.first} could be led to from: {'; '.join(reasons)}",
        "keep more checkpoints: [checkpoint] keep_last",
    )


def _ways(window: Window) -> list[int]:
    try:
        return origins(window.journal, window.first, window.last)
    except ReplayError as error:
        raise ReplayHopeless(str(error), error.hint) from error


def _check_room(plan: Plan, state_dir: Path) -> None:
    """Raise ReplayHopeless if memory is short, ReplayError if the disk is too full for now; pass a model of unknown
    memory."""
    longest = max((step.completed.tokens for step in plan.steps), default=1)
    settings = msgspec.structs.replace(plan.settings, max_tokens=min(plan.settings.max_tokens, longest))
    needed = memory_budget.alone(
        Path(plan.origin.model_dir), settings, most_examples(plan), most_tokens(plan), device_of(plan.bound) == "cuda"
    )
    if needed is None:
        return
    free = hardware.device_free_bytes() if needed.device.gpu else hardware.host_free_bytes()
    if free is not None and (lacking := lacking_memory(needed, free)):
        raise ReplayHopeless(lacking)
    disk = os.statvfs(state_dir)
    if lacking := lacking_disk(needed.table, disk.f_bavail * disk.f_frsize):
        raise ReplayError(lacking, "make room")


def serve(lines: BinaryIO, answers: BinaryIO) -> int:
    """Answer requests until the end of input (exit code 0), or until an error (1), which is the answer to the request
    at which it showed, or to the first one."""
    window = msgspec.json.decode(lines.readline(), type=Window)
    state_dir = Path(window.state_dir)
    remove_of_the_dead(state_dir, SEARCH_ROOM)
    room = of_this_process(state_dir, SEARCH_ROOM)
    number = 0
    with ExitStack() as stack:
        try:
            stack.callback(shutil.rmtree, room, ignore_errors=True)
            room.mkdir(mode=0o700)
            search = stack.enter_context(opened(window, room))
            while line := lines.readline():
                asked = msgspec.json.decode(line, type=Without)
                number = asked.number
                _answer(answers, search.replay(asked))
                number = 0
            return 0
        except ApolloError as error:
            failure = Outcome(number, error=error.line(), for_good=isinstance(error, ReplayHopeless))
        except OSError as error:
            failure = Outcome(number, error=reason(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours: the daemon says so and is told no more
            failure = Outcome(number, error=line_of(error))
    if not failure.number and (line := lines.readline()):
        failure = msgspec.structs.replace(failure, number=msgspec.json.decode(line, type=Without).number)
    if failure.number:
        _answer(answers, failure)
    return 1


def _answer(answers: BinaryIO, outcome: Outcome) -> None:
    answers.write(msgspec.json.encode(outcome) + b"\n")
    answers.flush()


def main() -> int:
    """Serve standard input; standard output has answers alone, all other output goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the whole group; the supervisor decides
    die_with_supervisor()
    yield_to_others()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        return serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    sys.exit(main())
