"""Plans a replay from the journal: which steps follow each other up to where, and the weights to start from.

A trainer loads the weights from a directory: where they lie whole, else exported for as long as the replay takes.
"""

import shutil
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from apollod.adapters.journal import blobs, journal_reader
from apollod.adapters.system.files import of_this_process, remove_of_the_dead
from apollod.cli.checkpoint_command import open_history, other_files
from apollod.core import events as ev
from apollod.errors import ApolloError, CheckpointError, JournalError, ReplayError
from apollod.store.entry import read_entry
from apollod.store.export import export
from apollod.store.fingerprint import directory_fingerprint
from apollod.store.history import History, Point
from apollod.wire.event_codec import decode_event
from apollod.wire.messages import OptimizerSettings

PAGE = 1000

E = TypeVar("E", bound=ev.Event)


@dataclass(frozen=True)
class Origin:
    """The weights that the first step starts from. `checkpoint`: empty before any step; `checkpoints`: directory of the
    history, `base`: directory of the kept untrained weights (both may be empty); `moved`: a whole model directory
    that the user names."""

    step: int
    fingerprint: str
    checkpoint: str
    checkpoints: str
    model_dir: str
    base: str
    moved: str


class Planned(NamedTuple):
    """A recorded step: intent, result, and the settings and environment in force."""

    started: ev.StepStarted
    completed: ev.StepCompleted
    settings: OptimizerSettings
    bound: ev.TrainerBound


@dataclass(frozen=True)
class Plan:
    """`steps` in the order in which each became the next one's parent; `settings` and `bound` of the first of them."""

    origin: Origin
    to: int
    steps: list[Planned]
    settings: OptimizerSettings
    bound: ev.TrainerBound


class _Checked(NamedTuple):
    """A journal up to the event at which its chain of hashes was checked. Events that a daemon writes later are
    ignored."""

    path: str
    last: int

    def all(self, cls: type[E]) -> list[tuple[int, E]]:
        """All events of a kind with their sequence numbers, in order."""
        found: list[tuple[int, E]] = []
        after = 0
        while page := journal_reader.events(self.path, after, cls.kind, PAGE):
            for row in page:
                if row["seq"] > self.last:
                    return found
                event = decode_event(row["kind"], row["version"], msgspec.json.encode(row["body"]))
                assert isinstance(event, cls)
                found.append((row["seq"], event))
            after = page[-1]["seq"]
        return found


def read_plan(journal: str, first: int, to: int | None, model_dir: str | None) -> Plan:
    """The way from the checkpoint at step `first` (0: base model) to step `to` (None: the version that is served).

    `model_dir`: a whole directory of the origin's weights. Raises JournalError for a broken chain of hashes,
    ReplayError for steps that do not lead to each other.
    """
    checked = _check(journal)
    for _, begun in checked.all(ev.JournalContinued):
        if first < begun.step:
            raise ReplayError(
                f"the journal begins at step {begun.step}, what was before is in the archive {begun.archive}",
                f"start --from {begun.step}, or give --journal {begun.archive} for steps up to that one",
            )
    started = {e.step: e for _, e in checked.all(ev.StepStarted)}
    completed = {e.step: (seq, e) for seq, e in checked.all(ev.StepCompleted)}
    daemons, bindings = checked.all(ev.DaemonStarted), checked.all(ev.TrainerBound)
    if not completed or not daemons or not bindings:
        raise ReplayError(f"the journal {journal} holds no completed step", "let the daemon learn something first")
    to = _last(completed, checked.all(ev.RollbackStarted)) if to is None else to
    chain = _chain(completed, first, to)
    steps = [
        Planned(started[e.step], e, _before(daemons, seq).settings.optimizer, _before(bindings, seq))
        for seq, e in chain
    ]
    at = chain[0][0] if chain else max(seq for seq, _ in completed.values())
    settings = _before(daemons, at).settings
    origin = _origin(checked, first, settings.model_path, bindings[0][1].fingerprint, model_dir)
    return Plan(origin, to, steps, settings.optimizer, _before(bindings, at))


def origins(journal: str, first: int, last: int) -> list[int]:
    """Steps from which step `first` can be led to on the way to step `last`, if their weights are there: those of
    checkpoints, the newest first, and 0. Raises as `read_plan`."""
    checked = _check(journal)
    completed = {e.step: (seq, e) for seq, e in checked.all(ev.StepCompleted)}
    begins = max([0, *(begun.step for _, begun in checked.all(ev.JournalContinued))])
    way = {e.step for _, e in _chain(completed, begins, last)} | {begins}
    if first not in way:
        raise ReplayError(f"step {last} does not descend from step {first}", "look at the view steps of the journal")
    kept = {e.step for e in _committed(checked)}
    return sorted((step for step in way if step <= first and (step in kept or not step)), reverse=True)


def read_record(journal: str, example: str) -> bytes:
    """The record of an example as the trainer got it. Raises ReplayError."""
    if (event := journal_reader.accepted(journal, example)) is not None:
        return blobs.recorded(journal, event)
    raise ReplayError(
        f"the journal holds no example {example}", "its step cannot be run again; start from a later checkpoint"
    )


def device_of(bound: ev.TrainerBound) -> Literal["cpu", "cuda"]:
    """The kind of device that the trainer was bound on."""
    return "cpu" if bound.versions.get("device", "cpu").startswith("cpu") else "cuda"


def _check(journal: str) -> _Checked:
    """The journal up to its present end. Raises JournalError for a broken chain."""
    chain = journal_reader.proved(journal)
    if chain.broken is not None:
        raise JournalError(
            f"the hash chain of {journal} breaks at event {chain.broken}",
            "replay proves nothing then; use an intact copy",
        )
    return _Checked(journal, chain.seq)


def _last(completed: dict[int, tuple[int, ev.StepCompleted]], back: list[tuple[int, ev.RollbackStarted]]) -> int:
    """Version of the weights at the end of the journal: the last step, or the target of a later rollback."""
    step = max(completed)
    seq, rollback = back[-1] if back else (0, None)
    return rollback.to if rollback is not None and seq > completed[step][0] else step


def _chain(
    completed: dict[int, tuple[int, ev.StepCompleted]], first: int, to: int
) -> list[tuple[int, ev.StepCompleted]]:
    """Steps from `to` through the parents down to `first`, the oldest first. Raises ReplayError."""
    chain = []
    step = to
    while step > first:
        if step not in completed:
            raise ReplayError(f"step {step} is not completed in the journal", f"--to may be at most {max(completed)}")
        chain.append(completed[step])
        step = completed[step][1].parent
    if step != first:
        raise ReplayError(
            f"step {to} does not descend from step {first}", "start --from 0, or from a checkpoint before --to"
        )
    return chain[::-1]


def _origin(journal: _Checked, first: int, model_path: str, base_fingerprint: str, moved: str | None) -> Origin:
    committed = [e for _, e in journal.all(ev.CheckpointCommitted)] if moved else _committed(journal)
    checkpoints = str(Path(committed[-1].path).parent) if committed else ""
    base, fingerprint, path = _base_dir(journal), base_fingerprint, ""
    if first:
        chosen = {e.step: e for e in committed}.get(first)
        if chosen is None:
            steps = [str(step) for step in sorted({0, *(e.step for e in committed)})]
            raise ReplayError(f"there is no checkpoint of step {first}", f"--from one of {', '.join(steps)}")
        fingerprint, path = chosen.fingerprint, chosen.path
    return Origin(first, fingerprint, path, checkpoints, model_path, base, moved or "")


def _committed(journal: _Checked) -> list[ev.CheckpointCommitted]:
    """Checkpoints that are not removed. A removed directory may be written again after a rollback: the later event
    counts."""
    removed = {e.path: seq for seq, e in journal.all(ev.CheckpointRemoved)}
    return [e for seq, e in journal.all(ev.CheckpointCommitted) if seq > removed.get(e.path, 0)]


def _base_dir(journal: _Checked) -> str:
    """Directory of the untrained weights; empty if they were not kept, or lost since."""
    kept, lost = journal.all(ev.BaseKept), journal.all(ev.BaseLost)
    return kept[-1][1].path if kept and (not lost or lost[-1][0] < kept[-1][0]) else ""


def _before(events: list[tuple[int, E]], seq: int) -> E:
    """The event in force at `seq`: the last one before it."""
    index = bisect_left(events, seq, key=lambda pair: pair[0])
    return events[max(0, index - 1)][1]


@dataclass(frozen=True)
class Start:
    """A whole model directory. `state`: checkpoint with the optimizer's state, empty for a fresh one; `said`: source of
    the weights, for people."""

    directory: str
    state: str
    said: str


@contextmanager
def start_of(origin: Origin, room: Path | None = None) -> Iterator[Start]:
    """The weights of an origin as a directory; an export, to `room` or else beside the checkpoints, is removed in the
    end. Raises ReplayError or CheckpointError if the weights are not available."""
    if origin.moved:
        yield Start(origin.moved, origin.moved if origin.step else "", origin.moved)
    elif origin.step:
        entry = read_entry(Path(origin.checkpoint))
        if entry.full:
            yield Start(origin.checkpoint, origin.checkpoint, origin.checkpoint)
        else:
            history = _history(origin)
            with _brought(history, history.point(entry), origin, room) as start:
                yield start
    elif whole := next((where for where in (origin.base, origin.model_dir) if _holds(where, origin.fingerprint)), ""):
        yield Start(whole, "", whole)
    else:
        history = _history(origin)
        try:
            brought = _brought(history, history.untrained(origin.fingerprint), origin, room)
        except CheckpointError as error:
            raise _gone(origin, str(error)) from error
        with brought as start:
            yield start


def _history(origin: Origin) -> History:
    if not origin.checkpoints:
        raise _gone(origin, "there is no checkpoint to go back from")
    return open_history(Path(origin.checkpoints), Path(origin.model_dir), Path(origin.base) if origin.base else None)


@contextmanager
def _brought(history: History, point: Point, origin: Origin, room: Path | None) -> Iterator[Start]:
    """The weights of a point: a copy that holds exactly them, else an export."""
    ways = history.ways(point)
    if not ways:
        raise history.unreachable(point)
    if not ways[0].deltas:
        where = str(ways[0].copy.path)
        yield Start(where, origin.checkpoint, where)
        return
    target = of_this_process(history.checkpoints.parent, "replay") if room is None else room / "start"
    remove_of_the_dead(history.checkpoints.parent, "replay")
    try:
        done = export(history, point, target, other_files(history))
        said = f"{done.origin}, over {done.deltas} deltas, for now in {target}"
        yield Start(str(target), origin.checkpoint, said)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _holds(where: str, fingerprint: str) -> bool:
    try:
        return bool(where) and directory_fingerprint(Path(where)) == fingerprint
    except (ApolloError, OSError):
        return False


def _gone(origin: Origin, why: str) -> ReplayError:
    looked = ", ".join(filter(None, (origin.base, origin.model_dir)))
    return ReplayError(
        f"the weights before the first step (fingerprint {origin.fingerprint}) are not in {looked}, and {why}",
        "name the unchanged base model with --model DIR, or start --from a checkpoint",
    )
