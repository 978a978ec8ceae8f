"""Builds a struct from others that hold some of its fields under the same names; carries part of a state into
another journal, as an event and back."""

from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from apollod.core.kernel.event import Event

T = TypeVar("T", bound=msgspec.Struct)
E = TypeVar("E", bound=Event)


def composed(kind: type[T], *sources: msgspec.Struct, **own: Any) -> T:
    """A struct of this kind. Each field comes from `own` or, by its name, from the last source that has it. Raises
    TypeError if a required field is missing, or `own` has one that the kind has not."""
    known = {name: getattr(source, name) for source in sources for name in source.__struct_fields__}
    return kind(**({name: known[name] for name in kind.__struct_fields__ if name in known} | own))


def carried(kind: type[E], own: msgspec.Struct, **more: Any) -> E:
    """An event with the fields of a state that have the names of its own, and with those in `more`. Lists become
    tuples, and dicts are copied: later folds change those of the state."""
    names = {*kind.__struct_fields__} & {*own.__struct_fields__} - {*more}
    return kind(**({name: _copied(getattr(own, name)) for name in names} | more))


def _copied(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value


def restore(own: msgspec.Struct, event: Event, but: Collection[str] = ()) -> None:
    """Set the fields of a state that have the names of the event's, except for those in `but`. Lists and dicts of the
    state are copies. Only folds call this."""
    for name in {*own.__struct_fields__} & {*event.__struct_fields__} - {*but}:
        value, now = getattr(event, name), getattr(own, name)
        setattr(own, name, type(now)(value) if isinstance(now, list | dict) else value)
