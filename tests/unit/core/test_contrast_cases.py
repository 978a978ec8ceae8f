"""Patterns' contrast cases in the guard's baseline: which, how many, and for how long."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns
from support.guarded_world import GuardedWorld

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.held_out_rounds import CASES_MAX, contrast_cases
from apollod.core.facts.dreams.scenario import Sketch, Turn
from apollod.core.facts.dreams.state import Course, DreamsState, HeldOut
from apollod.core.facts.quality.state import QualityState
from apollod.core.rules.quality.fold import FOLDS
from apollod.core.settings import PatternSettings, QualitySettings
from apollod.core.shared.archive_notes import QualityNotes, carried_quality
from apollod.core.state import State

LATER = msgspec.structs.replace(PATTERN, name="later", contrast=())
GUARDED = msgspec.structs.replace(with_patterns(PATTERN), quality=QualitySettings(every_steps=3))


def course(held: int, texts: int, **changes: object) -> Course:
    pattern = PatternSettings("p", "Do.", held_out=max(1, held), contrast=tuple(f"t{n}" for n in range(texts)))
    one = Course(pattern, "config", 0, **changes)  # type: ignore[arg-type]
    one.held = {f"d{n}": HeldOut((Turn("user", f"s{n}"),), Sketch(b"", b"")) for n in range(held)}
    return one


@given(held=st.integers(1, 40), texts=st.integers(1, 40))
def test_cases_differ_and_are_spread_evenly_over_scenarios_and_texts(held: int, texts: int) -> None:
    own = course(held, texts)
    found, texts = contrast_cases(DreamsState(courses={"p": own})), len(own.pattern.tested_contrasts)
    assert len({(one.dream, one.text) for one in found}) == len(found) == min(CASES_MAX, held * texts)
    for of, by in ((held, Counter(one.dream for one in found)), (texts, Counter(one.text for one in found))):
        assert len(by) == min(of, CASES_MAX) and max(by.values()) - min(by.values()) <= 1
    assert {one.scenario for one in found} == {(Turn("user", f"s{one.dream[1:]}"),) for one in found}


def test_of_many_scenarios_also_the_last_ones_are_asked() -> None:
    found = contrast_cases(DreamsState(courses={"p": course(120, 1)}))
    assert [int(one.dream[1:]) for one in found] == list(range(0, 120, 10))


def test_settled_patterns_are_in_and_retired_or_unfinished_ones_are_not() -> None:
    few = course(3, 1)
    few.pattern = msgspec.structs.replace(few.pattern, held_out=4)
    courses = {"a": course(4, 1), "s": course(4, 1, state="known"), "r": course(4, 1, state="given up"), "f": few}
    for name, one in courses.items():
        one.pattern = msgspec.structs.replace(one.pattern, name=name)
    assert {one.pattern for one in contrast_cases(DreamsState(courses=courses))} == {"a", "s"}


def test_without_a_text_of_its_own_the_instruction_is_taken_back() -> None:
    cases = contrast_cases(DreamsState(courses={"p": course(1, 0)}))
    assert len(cases) == 5 and all(case.text.startswith("Do.\n\n") for case in cases)


@pytest.mark.parametrize("texts", range(9))
def test_some_contrast_texts_are_held_out_of_any_number(texts: int) -> None:
    pattern = course(1, texts).pattern
    practised, held_out = pattern.contrasts, pattern.held_out_contrasts
    assert practised and held_out and not set(practised) & set(held_out)
    assert sorted(pattern.tested_contrasts) == sorted(practised + held_out)
    if texts > 1:
        assert sorted(pattern.tested_contrasts) == sorted(pattern.contrast) and len(held_out) <= len(practised)


class Dreaming(GuardedWorld, DreamingWorld):
    """Dreams with a guard. The name of its probes says which cases are asked."""

    def to_look(self) -> list[str]:
        """The patterns of each measurement, in their order."""
        while not self.probed:
            self.settle()
            assert self.probed or self.call(), "nothing is left to do"
        return sorted({one.pattern for one in self.probed[0].contrasts})


def dreaming() -> Dreaming:
    """Held-out scenarios of its pattern are there, and no baseline is yet."""
    world = Dreaming(GUARDED)
    world.answers = False
    world.up()
    while len(world.state.dreams.courses["ask"].held) < PATTERN.held_out:
        if world.probed:  # asked before there was any, and not answered in time
            world.give(inp.ProbesFailed(world.probed.pop().number, "nobody answers"))
        assert world.call()
    return world


def with_baseline() -> Dreaming:
    world = dreaming()
    world.give(inp.QualityWanted("p", baseline=True))
    world.now += 10**12
    world.give(inp.Tick())
    for _ in range(2):
        assert world.to_look() == ["ask"]
        world.look()
    return world


def learn(world: Dreaming, *examples: str) -> None:
    world.lines(*examples)
    world.to_look()


def test_a_baseline_has_the_cases_of_the_patterns_of_that_time_and_looks_ask_the_same() -> None:
    world = with_baseline()
    first, second = [one for one in world.of(ev.QualityMeasured) if one.why == "baseline"][-2:]
    assert len(first.contrasts) == 12 and first.contrasts == second.contrasts
    assert {one.text for one in first.contrasts} == set(PATTERN.tested_contrasts)
    world.give(inp.PatternWanted(LATER, "p"))
    world.dream(40)
    assert len(world.state.dreams.courses["later"].held) == LATER.held_out
    learn(world, *"abc")
    assert world.probed[0].contrasts == first.contrasts
    world.look()
    look = world.of(ev.QualityMeasured)[-1]
    assert look.why != "baseline" and look.contrasts == () and not world.of(ev.QualityFailed)[1:]


def test_a_baseline_that_is_under_way_keeps_the_patterns_of_its_first_run() -> None:
    world = dreaming()
    world.give(inp.QualityWanted("p", baseline=True))
    world.now += 10**12
    world.give(inp.Tick())
    world.to_look()
    world.look()
    world.give(inp.PatternUnwanted("ask", "p"))
    assert world.to_look() == ["ask"]
    world.look()
    assert world.state.quality.baseline and not world.probed


def test_neither_a_retired_pattern_nor_another_one_of_its_name_nor_a_new_life_changes_what_is_asked() -> None:
    world = with_baseline()
    cases = world.state.quality.contrasts
    world.give(inp.PatternWanted(msgspec.structs.replace(PATTERN, instruction="Something else."), "p"))
    world.give(inp.PatternUnwanted("ask", "p"))
    learn(world, *"abc")
    assert world.probed[0].contrasts == cases
    other = world.successor()
    other.answers = False
    assert isinstance(other, Dreaming)
    other.up()
    other.to_look()
    assert other.probed[0].contrasts == cases
    other.look()
    assert other.of(ev.QualityMeasured)[-1].why == "steps"
    other.give(inp.QualityWanted("p", baseline=True))
    assert other.to_look() == [], "a retired pattern leaves at the next baseline"


def test_a_journal_that_goes_on_from_an_archive_asks_the_same() -> None:
    world, notes, own = with_baseline(), QualityNotes(), QualityState()
    for recorded in world.journal:
        notes.see(recorded)
    for at_ns, event in notes.taken_over(world.state.quality):
        FOLDS[type(event)](own, State(), event, at_ns)
    assert own.contrasts == carried_quality(world.state.quality).contrasts == world.state.quality.contrasts != ()


def test_without_patterns_nothing_of_them_is_asked() -> None:
    world = GuardedWorld(msgspec.structs.replace(GUARDED, dream=type(GUARDED.dream)()))
    world.answers = False
    world.up()
    world.lines("a")
    assert [one.contrasts for one in world.probed] == [()] and isinstance(world.probed[0], fx.MeasureQuality)


def test_a_practice_that_leaks_is_an_alarm_like_any_other() -> None:
    """A dozen cases say so in two looks."""
    world = with_baseline()
    name = "contrast/ask.passed"
    world.more = {name: {f"c{n}": 1.0 for n in range(12)}}
    world.give(inp.QualityWanted("p", baseline=True))
    for _ in range(2):
        world.to_look()
        world.look()
    learn(world, *"abc")
    world.look()
    assert not world.of(ev.QualityAlarmed)
    world.more = {name: {f"c{n}": 0.0 for n in range(12)}}
    for examples in ("def", "ghi"):
        learn(world, *examples)
        world.look()
    (alarmed,) = world.of(ev.QualityAlarmed)
    assert alarmed.metrics == (name,)


def test_a_look_at_all_probes_follows_a_pattern_that_was_practised_until_it_is_shown() -> None:
    """Another behaviour may have fallen for it, told ones too: half of them once did, and nothing noticed."""
    world = with_baseline()
    while not world.of(ev.PatternSettled):
        world.settle()
        if world.probed:
            world.look()
        assert world.call()
    learned = len(world.of(ev.StepStarted))
    learn(world, *"abc")
    asked = world.of(ev.QualityRequested)[-1]
    assert (asked.why, asked.share) == ("settled", 1.0) and len(world.of(ev.StepStarted)) == learned
    world.look()
    assert world.of(ev.QualityMeasured)[-1].why == "settled" and not world.state.quality.asked
