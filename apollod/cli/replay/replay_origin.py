"""The weights that a replay starts from, as a directory that a trainer can load: where they lie whole, else exported
for as long as the replay takes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apollod.adapters.system.files import of_this_process, remove_of_the_dead
from apollod.cli.checkpoints.open_history import open_history, other_files
from apollod.cli.replay.replay_plan import Origin
from apollod.errors import ApolloError, CheckpointError, ReplayError
from apollod.store.entry import read_entry
from apollod.store.export import export
from apollod.store.fingerprint import directory_fingerprint
from apollod.store.history import History, Point


@dataclass(frozen=True)
class Start:
    """A whole model directory. `state`: the checkpoint with the optimizer's state, empty for a fresh one; `said`:
    where the weights come from, in words."""

    directory: str
    state: str
    said: str


@contextmanager
def start_of(origin: Origin, room: Path | None = None) -> Iterator[Start]:
    """What is exported, to `room` or else beside the checkpoints, is removed in the end. Raises ReplayError or
    CheckpointError where the weights are not to be had."""
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
    """A copy that holds just these weights is used where it lies."""
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
