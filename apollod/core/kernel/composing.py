"""Builds a struct from others that hold some of its fields under the same names."""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def composed(kind: type[T], *sources: msgspec.Struct, **own: Any) -> T:
    """A struct of this kind. Each field comes from `own` or, by its name, from the last source that has it. Raises
    TypeError if a required field is missing, or `own` has one that the kind has not."""
    known = {name: getattr(source, name) for source in sources for name in source.__struct_fields__}
    return kind(**({name: known[name] for name in kind.__struct_fields__ if name in known} | own))
