"""Structs that are composed of others by the names of their fields."""

import ast
import importlib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

import apollod
from apollod.core.kernel.composing import carried, composed, restore
from apollod.core.kernel.event import Event

ROOT = Path(apollod.__file__).parent


class Part(msgspec.Struct):
    a: int
    b: int = 2
    other: str = "x"


class Whole(msgspec.Struct):
    a: int
    b: int
    c: int = 3


def test_fields_come_by_name_the_last_source_first_and_own_ones_before_all():
    assert composed(Whole, Part(1)) == Whole(1, 2, 3)
    assert composed(Whole, Part(1), Whole(4, 5, 6)) == Whole(4, 5, 6)
    assert composed(Whole, Whole(4, 5, 6), Part(1), b=7) == Whole(1, 7, 6)


def test_an_unknown_or_missing_field_is_refused():
    with pytest.raises(TypeError, match="d"):
        composed(Whole, Part(1), d=1)
    with pytest.raises(TypeError, match="'b'"):
        composed(Whole, a=1)


class Kept(msgspec.Struct):
    a: list[int]
    b: dict[int, int]
    c: int = 0


class KeptEvent(Event, frozen=True):
    other: str
    a: tuple[int, ...]
    b: dict[int, int]


def test_an_event_carries_copies_of_a_state_and_restores_copies():
    state, again = Kept([1], {1: 2}, 3), Kept([], {})
    event = carried(KeptEvent, state, other="x")
    assert event == KeptEvent("x", (1,), {1: 2}) and event.b is not state.b
    restore(again, event)
    assert again == Kept([1], {1: 2}) and again.b is not event.b
    restore(again, KeptEvent("x", (4,), {}), but="a")
    assert again == Kept([1], {})


def alternatives(hint: Any) -> set[Any]:
    """The members of a union, else the type alone; a Literal is a union of its values' types."""
    if get_origin(hint) in (Union, types.UnionType):
        return set().union(*(alternatives(one) for one in get_args(hint)))
    return {type(one) for one in get_args(hint)} if str(hint).startswith("typing.Literal") else {hint}


def type_of(node: ast.expr, names: dict[str, Any]) -> Any:
    """The struct that an expression such as `input_` or `state.intake.counts` is; None: not known."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(owner := type_of(node.value, names), type):
        found = alternatives(get_type_hints(owner).get(node.attr)) - {type(None)}
        return found.pop() if len(found) == 1 else None
    return None


COMPOSING = {"composed", "input_of", "carried"}
"""Functions of a kind, its sources, and own fields."""


def constant(hint: Any) -> Any:
    """The type that `carried` makes of a field of a state."""
    return tuple[get_args(hint)[0], ...] if get_origin(hint) is list else hint


def calls() -> Iterator[tuple[str, Any, Any, set[str]]]:
    """Place, kind, types of the source's fields, and own fields of each call whose source is a parameter, or a field of
    one."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if not any(f"{name}(" in text for name in COMPOSING):
            continue
        for function in (
            one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            made = [one for one in ast.walk(function) if isinstance(one, ast.Call)]
            made = [one for one in made if ast.unparse(one.func) in COMPOSING and function.name not in COMPOSING]
            if not made:
                continue
            module = importlib.import_module(".".join(path.relative_to(ROOT.parent).with_suffix("").parts))
            names = vars(module) | {
                one.name: vars(importlib.import_module(str(imported.module))).get(one.name)
                for imported in ast.walk(function)
                if isinstance(imported, ast.ImportFrom)
                for one in imported.names
            }
            hints = {
                one.arg: eval(ast.unparse(one.annotation), names)
                for one in function.args.args
                if one.annotation is not None
            }
            for call in made:
                kind = eval(ast.unparse(call.args[0]), names)
                for source in call.args[1:]:
                    if isinstance(known := type_of(source, hints), type):
                        place = f"{path.name}:{call.lineno} {ast.unparse(source)}"
                        there = get_type_hints(known)
                        if ast.unparse(call.func) == "carried":
                            there = {name: constant(hint) for name, hint in there.items()}
                        yield place, kind, there, {str(keyword.arg) for keyword in call.keywords}


def test_fields_of_one_name_have_one_type_on_both_sides():
    """What the type checker sees where a field is copied by hand."""
    looked_at, wrong = 0, []
    for place, kind, there, own in calls():
        here = get_type_hints(kind)
        names = {*kind.__struct_fields__} & {*there} - own
        looked_at += len(names)
        wrong += [f"{place}: {one}" for one in names if not alternatives(there[one]) <= alternatives(here[one])]
    assert not wrong and looked_at > 100
