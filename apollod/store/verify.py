"""Verifies what a history of checkpoints can restore: reads every copy, applies every delta once, compares every
fingerprint."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from apollod.errors import ApolloError
from apollod.store.block_table import Array
from apollod.store.delta import ChunkwiseDelta, Place, chunks, read_delta
from apollod.store.entry import STATE, UNDO
from apollod.store.fingerprint import Fingerprint
from apollod.store.history import Copy, Held, History
from apollod.store.model_files import WeightFile, read_files, read_header
from apollod.store.pieces import Stream, directory_pieces

Progress = Callable[[int], None]
"""Called with the number of bytes of weights that were just read or computed."""


@dataclass
class Checked:
    """A checkpoint after the check. `problems` empty: whole. `reachable`: its weights were restored with the recorded
    fingerprint."""

    held: Held
    problems: list[str] = field(default_factory=list)
    reachable: bool = False


@dataclass
class Verified:
    """`checkpoints` in the order of writing; `copies`: problems of the model directory and the base; `notes`: remarks
    that are not damage."""

    checkpoints: list[Checked]
    copies: dict[str, list[str]]
    broken: dict[str, str]
    notes: list[str]

    @property
    def ok(self) -> bool:
        return not (self.broken or any(self.copies.values()) or any(checked.problems for checked in self.checkpoints))


def verify(history: History, progress: Progress = lambda count: None) -> Verified:
    """Check everything; nothing is written. The result lists the damage. Raises WeightsLocked during a sync, and
    CheckpointError where one came between."""
    checked = {held.path: Checked(held, list(held.wrong.values())) for held in history.held}
    for one in checked.values():
        one.problems += _optimizer_problem(one.held)
    result = Verified(list(checked.values()), {}, {str(broken.path): broken.reason for broken in history.broken}, [])
    roots = _check_copies(history, result, checked, progress)
    reached = set(roots)
    edges = _Edges(history.held)
    while (root := edges.next_root(roots)) is not None:
        reached |= _walk(history, roots[root], edges.tree(root), edges, progress)
    for one in result.checkpoints:
        one.reachable = one.held.entry.fingerprint in reached
        one.problems += edges.problem(one.held)
        if not one.reachable:
            one.problems.append(f"no way leads to its weights{_because(history)}")
    result.notes += [f"{history.uncommitted.path} is not committed"] if history.uncommitted else []
    result.notes += [gap for gap in history.gaps() if "does not follow" in gap]
    return result


def _because(history: History) -> str:
    gaps = [gap for gap in history.gaps() if "does not follow" in gap or gap == history.model.problem]
    return f" ({'; '.join(gaps)})" if gaps else ""


def _optimizer_problem(held: Held) -> list[str]:
    if STATE in held.wrong:
        return []  # already reported
    if STATE not in held.entry.files:
        return [f"{held.path} has no optimizer state"]
    try:
        read_header(held.path, STATE)
    except ApolloError as error:
        return [str(error)]
    return []


def _check_copies(
    history: History, result: Verified, checked: dict[Path, Checked], progress: Progress
) -> dict[str, Copy]:
    """Read every copy of weights; return computed fingerprint -> copy. The model directory comes last: it is locked
    while it is read."""
    roots: dict[str, Copy] = {}
    if history.model.problem:
        result.copies[str(history.model_dir)] = [history.model.problem]
    for copy in sorted(history.copies(), key=lambda copy: copy.kind == "model"):
        problems = checked[copy.path].problems if copy.kind == "full" else result.copies.setdefault(str(copy.path), [])
        with history.lock(copy):
            history.check_unchanged(copy)
            try:
                found = _fingerprint_of(copy.path, progress)
            except (ApolloError, OSError) as error:
                problems.append(str(error))
                continue
        if copy.fingerprint and found != copy.fingerprint:
            problems.append(f"the weights in {copy.path} have fingerprint {found}, recorded is {copy.fingerprint}")
        roots.setdefault(found, Copy(copy.kind, copy.path, found))
    if (stray := history.stray()) and not history.model.problem:
        result.copies[str(history.model_dir)].append(stray)
    return roots


def _fingerprint_of(directory: Path, progress: Progress) -> str:
    found, files = Fingerprint(), read_files(directory)
    stream = Stream(directory_pieces(directory, files))
    for place in chunks(files):
        found.add(place.tensor.name, place.offset, stream.take(place.tensor.file, place.start, place.size))
        progress(place.size)
    return found.text()


@dataclass
class _Node:
    """Weights on a walk: those of a copy, or the result of applying `delta` to the parent's."""

    expected: str
    held: Held | None = None
    delta: ChunkwiseDelta | None = None
    children: list["_Node"] = field(default_factory=list)
    sum: Fingerprint = field(default_factory=Fingerprint)
    failed: bool = False

    def all(self) -> Iterator["_Node"]:
        """This node and all its descendants."""
        ahead = [self]
        while ahead:
            node = ahead.pop()
            ahead += node.children
            yield node


class _Edges:
    """The deltas: those not checked yet, those that are good, and those that are bad with the reason."""

    def __init__(self, held: list[Held]) -> None:
        self._all = [one for one in held if one.delta]
        self._open = {one.path for one in self._all}
        self._bad: dict[Path, str] = {}
        self._done: set[Path] = set()

    def next_root(self, roots: dict[str, Copy]) -> str | None:
        """Weights of a copy that lead to unchecked deltas."""
        return next((root for root in roots if any(node.held for node in self.tree(root).all())), None)

    def tree(self, root: str) -> _Node:
        """Tree from these weights over all good deltas, pruned to branches with unchecked ones; where two paths meet,
        both end."""
        top = _Node(root)
        seen, used, ahead, order = {root}, set(self._bad), [top], []
        while ahead:
            node = ahead.pop(0)
            order.append(node)
            for one in self._all:
                sides = (one.entry.before_fingerprint, one.entry.fingerprint)
                if node.expected not in sides or one.path in used:
                    continue
                used.add(one.path)
                other = sides[1] if node.expected == sides[0] else sides[0]
                child = _Node(other, one)
                node.children.append(child)
                if other not in seen:
                    seen.add(other)
                    ahead.append(child)
        for node in reversed(order):
            node.children = [
                child for child in node.children if child.children or (child.held and child.held.path in self._open)
            ]
        return top

    def done(self, held: Held) -> None:
        self._open.discard(held.path)
        self._done.add(held.path)

    def bad(self, held: Held, reason: str) -> None:
        self._open.discard(held.path)
        self._bad[held.path] = reason

    def problem(self, held: Held) -> list[str]:
        """Problem of a checkpoint's delta; if no path leads to it, as far as its file alone shows."""
        if held.path in self._bad:
            return [self._bad[held.path]]
        if held.path in self._open:
            try:
                read_delta(held.path / UNDO)
            except ApolloError as error:
                return [str(error)]
        return []


def _walk(history: History, copy: Copy, top: _Node, edges: _Edges, progress: Progress) -> set[str]:
    """Compute all weights of a tree at once, chunk by chunk; return the fingerprints that came out as recorded."""
    _open_deltas(top, history.files, edges)
    with history.lock(copy):
        history.check_unchanged(copy)
        stream = Stream(directory_pieces(copy.path, history.files))
        for place in chunks(history.files):
            _descend(top, place, stream.take(place.tensor.file, place.start, place.size), edges, progress)
    return _settle(top, edges)


def _open_deltas(top: _Node, files: tuple[WeightFile, ...], edges: _Edges) -> None:
    for node in top.all():
        if node.held:
            try:
                node.delta = ChunkwiseDelta(node.held.path / UNDO, files)
            except ApolloError as error:
                _fail(node, str(error), edges)


def _descend(top: _Node, place: Place, data: Array, edges: _Edges, progress: Progress) -> None:
    ahead = [(top, data)]
    while ahead:
        node, here = ahead.pop()
        node.sum.add(place.tensor.name, place.offset, here)
        progress(place.size)
        for child in node.children:
            if child.failed or child.delta is None:
                continue
            try:
                ahead.append((child, child.delta.apply(place, here)))
            except ApolloError as error:
                _fail(child, str(error), edges)


def _fail(node: _Node, reason: str, edges: _Edges) -> None:
    assert node.held is not None
    node.failed = True
    edges.bad(node.held, reason)


def _settle(top: _Node, edges: _Edges) -> set[str]:
    """Mark the good deltas of a finished walk. Deltas that follow a bad one stay unchecked."""
    good, ahead = {top.expected}, list(top.children)
    while ahead:
        node = ahead.pop()
        assert node.held is not None
        if node.failed:
            continue
        if (found := node.sum.text()) != node.expected:
            edges.bad(
                node.held, f"the delta of {node.held.path} gives fingerprint {found}, recorded is {node.expected}"
            )
            continue
        good.add(node.expected)
        edges.done(node.held)
        ahead += node.children
    return good
