"""Folds events into the state: each subject folds its own events into its own slice.

Law: `fold` is the only writer. It changes the state it is given and returns it, so that a million events fold in
seconds.
"""

from collections.abc import Callable, Collection
from typing import Any

from apollod.core import events as ev
from apollod.core.state import State
from apollod.core.subjects import SUBJECTS

IGNORED = frozenset(
    {
        ev.ConfigChanged, ev.ExampleCarried, ev.SourceDiscovered, ev.ReplayVerified, ev.ReplayDiverged,
    }
)  # fmt: skip
"""Facts for people only: no decision depends on them."""

_FOLLOWERS: dict[type[ev.Event], list[tuple[str, Callable[[Any, State, Any, int], None]]]] = {}
for _subject in reversed(SUBJECTS):
    for _kind, _follow in _subject.folds.items():
        _FOLLOWERS.setdefault(_kind, []).append((_subject.name, _follow))


def fold_slices(state: State, recorded: ev.Recorded, slices: Collection[str]) -> State:
    """Apply one recorded event to these slices only, for a reader who needs no other events than theirs."""
    for slice_, follow in _FOLLOWERS.get(type(recorded.event), ()):
        if slice_ in slices:
            follow(getattr(state, slice_), state, recorded.event, recorded.at_ns)
    return state


def fold(state: State, recorded: ev.Recorded) -> State:
    """Apply one recorded event to `state` and return it."""
    state.seq = recorded.seq
    event = recorded.event
    for slice_, follow in _FOLLOWERS.get(type(event), ()):
        follow(getattr(state, slice_), state, event, recorded.at_ns)
    return state
