"""What the state of dreams will be once events are recorded that are only decided, so that what certainly follows is
recorded with them. Pure: a copy is folded, by the same folds."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from apollod.core.dreams.fold import FOLDS, count_learned
from apollod.core.kernel.event import Event
from apollod.core.state import State

StructT = TypeVar("StructT", bound=msgspec.Struct)


def foreseen(state: State, events: Sequence[Event], learned: Sequence[str], now_ns: int) -> State:
    """The state after `events` of the dream under way, before which a step learned these examples. All but the slice
    of dreams is as it was."""
    own = _copied(state.dreams)
    assert own.open is not None
    own.open = _copied(own.open)
    own.courses[own.open.pattern] = _copied(own.courses[own.open.pattern])
    own.wanted = None if own.wanted is None else _copied(own.wanted)
    count_learned(own, learned)
    for event in events:
        if (fold := FOLDS.get(type(event))) is not None:
            fold(own, state, event, now_ns)
    return msgspec.structs.replace(state, dreams=own)


def _copied(whole: StructT) -> StructT:
    """A copy with lists and dicts of its own; what they hold is shared."""
    values = {name: getattr(whole, name) for name in whole.__struct_fields__}
    own = {name: value.copy() for name, value in values.items() if isinstance(value, list | dict)}
    return msgspec.structs.replace(whole, **own)
