"""What every subject of the core owes: each event is folded or ignored on purpose, each input answered, each slice
its own."""

import importlib
import pkgutil
from types import ModuleType

import msgspec
import pytest
from property.test_core_properties import play
from support.world import World

import apollod.core.facts
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.fold import IGNORED
from apollod.core.state import State
from apollod.core.subjects import SUBJECTS

NAMES = sorted(m.name for m in pkgutil.iter_modules(apollod.core.facts.__path__))


def modules(subject: str) -> list[ModuleType]:
    """Those of its facts."""
    facts = importlib.import_module(f"apollod.core.facts.{subject}")
    inner = pkgutil.iter_modules(getattr(facts, "__path__", []), f"{facts.__name__}.")
    return [facts, *(importlib.import_module(m.name) for m in inner)]


def test_every_event_is_folded_or_ignored_on_purpose():
    folded = {kind for subject in SUBJECTS for kind in subject.folds}
    assert set(ev.KINDS.values()) - folded == IGNORED
    assert not folded & IGNORED


def test_every_input_is_answered_by_some_subject():
    answered = {kind for subject in SUBJECTS for kind in subject.handlers} | {inp.Tick, inp.Advance}
    assert set(inp.Input.__subclasses__()) == answered


def test_every_subject_is_asked_folded_and_has_a_slice():
    assert sorted(subject.name for subject in SUBJECTS) == NAMES
    assert set(State.__struct_fields__) - {"seq"} == set(NAMES)


@pytest.mark.parametrize("facade", [ev, inp, fx])
def test_what_a_subject_declares_has_one_name_for_all(facade):
    """A subject that is new, and that nobody imported into the facade, would not be found by the journal's codec."""
    kind = facade.__name__.rpartition(".")[2]
    base = {"events": ev.Event, "inputs": inp.Input, "effects": fx.Effect}[kind]
    for declared in (module for subject in NAMES for module in modules(subject)):
        for name, value in vars(declared).items():
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == declared.__name__:
                a_base = base is ev.Event and not value.kind
                assert a_base or getattr(facade, name) is value


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
        for name, folds in ((subject.name, subject.folds) for subject in reversed(SUBJECTS)):
            follow = folds.get(type(recorded.event))
            if follow is None:
                continue
            others = {other: encoded(state, other) for other in NAMES if other != name}
            follow(getattr(state, name), state, recorded.event, recorded.at_ns)
            seen.add((name, type(recorded.event)))
            for other, before in others.items():
                assert encoded(state, other) == before, (name, other, recorded.event.kind)
    assert state == world.state
    assert len(seen) > 50, "the life is too short to show anything"
