"""What every subject of the core owes: each event is folded or ignored on purpose, each input answered, each slice
its own."""

import importlib
import pkgutil
from types import ModuleType

import msgspec
import pytest
from property.test_core_properties import play
from support.world import World

import apollod.core
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import SUBJECTS
from apollod.core.fold import IGNORED, SLICES
from apollod.core.state import State

NO_SUBJECTS = {"kernel"}


def packages() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(apollod.core.__path__) if m.ispkg and m.name not in NO_SUBJECTS)


def module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"apollod.core.{package}.{name}")


def test_every_event_is_folded_or_ignored_on_purpose():
    folded = {kind for folds in SLICES.values() for kind in folds}
    assert set(ev.KINDS.values()) - folded == IGNORED
    assert not folded & IGNORED


def test_every_input_is_answered_by_some_subject():
    answered = {kind for subject in SUBJECTS for kind in subject.HANDLERS} | {inp.Tick, inp.Advance}
    assert set(inp.Input.__subclasses__()) == answered


def test_every_subject_is_asked_folded_and_has_a_slice():
    names = packages()
    assert sorted(SLICES) == names == sorted(subject.__name__.split(".")[2] for subject in SUBJECTS)
    assert set(State.__struct_fields__) - {"seq"} == set(names)


@pytest.mark.parametrize("facade", [ev, inp, fx])
def test_what_a_subject_declares_has_one_name_for_all(facade):
    """A subject that is new, and that nobody imported into the facade, would not be found by the journal's codec."""
    kind = facade.__name__.rpartition(".")[2]
    base = {"events": ev.Event, "inputs": inp.Input, "effects": fx.Effect}[kind]
    for package in packages():
        try:
            declared = module(package, kind)
        except ModuleNotFoundError:
            continue
        for name, value in vars(declared).items():
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == declared.__name__:
                assert getattr(facade, name) is value


LIFE = """lines direct settle checkpoint settle lines answer trainer-dies settle back settle relearn settle engine-dies
settle withdraw pause resume checkpoint answer trainer-dies settle restart lines"""


def encoded(state: State, slice_: str) -> bytes:
    return msgspec.json.encode(getattr(state, slice_), enc_hook=list)


def test_a_fold_writes_its_own_slice_only():
    """Slice by slice over a whole life: what a subject's fold leaves different is its own."""
    world: World = play([action.replace("-", " ") for action in LIFE.split()])
    state = State()
    seen = set()
    for recorded in world.journal:
        state.seq = recorded.seq
        for name, folds in SLICES.items():
            follow = folds.get(type(recorded.event))
            if follow is None:
                continue
            others = {other: encoded(state, other) for other in SLICES if other != name}
            follow(getattr(state, name), state, recorded.event, recorded.at_ns)
            seen.add((name, type(recorded.event)))
            for other, before in others.items():
                assert encoded(state, other) == before, (name, other, recorded.event.kind)
    assert state == world.state
    assert len(seen) > 50, "the life is too short to show anything"
