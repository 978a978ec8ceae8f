"""Dreams in surroundings: which one stands before a scenario, that it stays there, and what counts as settled."""

from collections import Counter
from itertools import product

import msgspec
import pytest
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn, likeness
from apollod.core.surroundings import NOTHING, SURROUNDING_KINDS, Surrounding
from apollod.curation.stripping import restored
from apollod.curation.surrounding_texts import conversation_in
from apollod.supervisor.lesson_view import patterns_view
from apollod.wire import event_codec

replace = msgspec.structs.replace
WIDE = replace(PATTERN, held_out=8, contrast=("Act at once.", "Do not ask."))
KINDS = set(SURROUNDING_KINDS)


@pytest.fixture
def world() -> DreamingWorld:
    return DreamingWorld(with_patterns(WIDE)).up()


def kinds_of(world: DreamingWorld, purpose: str) -> list[str]:
    return [e.surrounding.kind for e in world.of(ev.DreamRequested) if e.purpose == purpose]


def test_held_out_scenarios_practices_and_variations_come_in_every_kind(world: DreamingWorld) -> None:
    world.firm["ask"] = -20
    world.dream(300)
    for purpose in ("held-out", "practice", "variation"):
        counts = Counter(kinds_of(world, purpose)[:8])
        assert set(counts) == KINDS and max(counts.values()) <= 3, (purpose, counts)
    tested = {(e.surrounding, e.contrast) for e in world.of(ev.DreamTested) if e.round and e.mode == "contrast"}
    assert tested == set(product(KINDS, WIDE.contrast)), "each contrast text in every kind"


def test_bare_and_contrast_practices_come_in_every_kind_where_they_take_turns() -> None:
    def told(asked: fx.TestScenario) -> bool:
        return (asked.round, asked.mode) == ("baseline", "contrast")

    world = DreamingWorld(with_patterns(replace(WIDE, dreams=40))).up()
    world.firm["ask"] = -100
    whole = world.reply
    world.reply = lambda asked: (  # type: ignore[method-assign]
        replace(whole(asked), passed=asked.mode == "told" or told(asked))  # type: ignore[type-var]
        if isinstance(asked, fx.TestScenario)
        else whole(asked)
    )
    world.dream()
    practised = {(e.surrounding.kind, e.contrast) for e in world.of(ev.DreamRequested) if e.purpose == "practice"}
    assert practised == set(product(KINDS, ("", *WIDE.contrasts)))


def test_no_test_is_made_in_a_surrounding_that_was_practised_in(world: DreamingWorld) -> None:
    world.dream()
    purpose = {e.dream: e.purpose for e in world.of(ev.DreamRequested)}
    stands = {use: set[str]() for use in ("practice", "tests")}
    for e in world.of(ev.DreamImagined):
        stands["practice" if purpose[e.dream] == "practice" else "tests"].add(e.surrounding.id)
    assert stands["practice"] - {""} and stands["tests"] - {""}
    assert stands["practice"] & stands["tests"] <= {""}


def test_what_stands_before_a_scenario_stays_there_for_every_call_and_is_recorded(world: DreamingWorld) -> None:
    world.dream()
    stood = {e.dream: e.surrounding for e in world.of(ev.DreamImagined)}
    asked = [e for e in world.answered if isinstance(e, fx.AnswerScenario | fx.JudgeDream | fx.TestScenario)]
    assert {type(one).__name__ for one in asked} == {"AnswerScenario", "JudgeDream", "TestScenario"}
    assert all(one.surrounding == stood[one.dream] for one in asked)
    assert all(e.surrounding == stood[e.dream].kind for e in world.of(ev.DreamTested))
    assert {one.kind for one in stood.values()} == KINDS


def test_what_is_taken_out_stands_where_it_stood(world: DreamingWorld) -> None:
    """Put back, the conversation is the one that the model was told in."""
    world.dream()
    stood = {e.dream: e.surrounding for e in world.of(ev.DreamImagined)}
    asked, kinds = (Turn("user", "Empty the bin."),), set()
    for e in world.of(ev.ExampleAccepted):
        if e.removed:
            around = stood[e.source.removeprefix("dream:")]
            kinds.add(around.kind)
            bare, told = (conversation_in(around, text, asked, "Shall I?") for text in ("", WIDE.instruction))
            assert restored(bare, e.removed) == told
    assert kinds == KINDS


def test_what_is_shown_bare_only_is_not_settled(world: DreamingWorld) -> None:
    """As it was before anything was practised elsewhere: every test without a surrounding passes, and no other."""
    world.only_elsewhere = KINDS - {"none"}
    world.dream(1200)
    assert not world.of(ev.PatternSettled) and world.of(ev.DreamTrained)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_kind_in_which_nothing_is_shown_is_enough_to_practise_on(world: DreamingWorld, kind: str) -> None:
    """Six of eight held-out scenarios pass, which is a share of 3/4: more than is asked for here."""
    world = DreamingWorld(with_patterns(replace(WIDE, settle=(1, 2), dreams=30))).up()
    world.only_elsewhere = {kind}
    world.dream()
    assert not world.of(ev.PatternSettled)
    (retired,) = world.of(ev.PatternRetired)
    assert "practices were not enough" in retired.reason
    world = DreamingWorld(with_patterns(replace(WIDE, settle=(1, 2), surroundings=tuple(KINDS - {kind})))).up()
    world.only_elsewhere = {kind}
    world.dream()
    assert world.of(ev.PatternSettled), "in the others it is shown"


@pytest.mark.parametrize("followed", [0, 1])
def test_where_no_answer_shows_it_even_when_told_nothing_is_practised_and_nothing_has_to_be_shown(
    world: DreamingWorld, followed: int
) -> None:
    """One of its two held-out scenarios is enough for a kind to be practised in."""
    usual, passed = world.reply, list[str]()

    def reply(asked: fx.Effect) -> inp.Input:
        said = usual(asked)
        if not isinstance(asked, fx.TestScenario) or asked.surrounding.kind != "agent" or asked.mode == "contrast":
            return said
        shows = asked.mode == "told" and len(passed) < followed
        passed.extend([asked.dream] * shows)
        return replace(said, passed=shows)  # type: ignore[type-var]

    world.reply = reply  # type: ignore[method-assign]
    world.dream(1200)
    practised = {e.surrounding.kind for e in world.of(ev.DreamRequested) if e.purpose in ("practice", "variation")}
    assert practised == (KINDS if followed else KINDS - {"agent"})
    in_place = {
        kind for one in world.answered if isinstance(one, fx.ImagineScenario) and one.variation_of for kind in one.kinds
    }
    assert in_place == practised, "nor is it taken where another kind cannot be had"
    tested = {e.surrounding for e in world.of(ev.DreamTested) if e.round.startswith("final") and e.mode == "bare"}
    if followed:
        assert not world.of(ev.PatternSettled)
    else:
        (settled,) = world.of(ev.PatternSettled)
        assert tested == KINDS - {"agent"} and set(settled.around["agent"]) == {"contrast"}
    shown = patterns_view(world.state, 0)["patterns"][0]
    assert ("agent" in shown["not_followed"]) is not bool(followed)


def test_an_instruction_that_is_followed_in_half_of_the_kinds_is_followed_there(world: DreamingWorld) -> None:
    """Three of four scenarios in two kinds, none in the two others: three of eight in all, which is under a half."""
    usual, followed = world.reply, ("none", "neutral")
    missed = list[str]()

    def reply(asked: fx.Effect) -> inp.Input:
        said = usual(asked)
        if not isinstance(asked, fx.TestScenario) or asked.mode not in ("bare", "told"):
            return said
        if asked.surrounding.kind not in followed:
            return replace(said, passed=False)  # type: ignore[type-var]
        if asked.mode == "told" and asked.round == "baseline" and not missed:
            missed.append(asked.dream)
            return replace(said, passed=False)  # type: ignore[type-var]
        return said

    world.reply = reply  # type: ignore[method-assign]
    world.dream(1200)
    assert world.state.dreams.courses["ask"].baseline["told"] == (3, 8)
    (settled,) = world.of(ev.PatternSettled)
    assert {kind for kind, tests in settled.around.items() if "bare" in tests} == set(followed)


def test_figures_are_kept_by_kind(world: DreamingWorld) -> None:
    world.dream()
    course = world.state.dreams.courses["ask"]
    assert {kind: tests["bare"] for kind, tests in course.baseline_around.items()} == dict.fromkeys(KINDS, (0, 2))
    assert {kind: tests["bare"] for kind, tests in course.final_around.items()} == dict.fromkeys(KINDS, (2, 2))
    (settled,) = world.of(ev.PatternSettled)
    assert settled.around == course.final_around and "told" not in settled.around["own"]


def test_a_pattern_may_name_its_own_and_has_those_of_the_section_else() -> None:
    patterns = (replace(WIDE, surroundings=("agent",)), replace(WIDE, name="caps"))
    world = DreamingWorld(with_patterns(*patterns, dream={"surroundings": ("none", "own")})).up()
    world.dream(80)
    asked = [one for one in world.answered if isinstance(one, fx.ImagineScenario)]
    assert {(one.pattern.name, one.kinds, one.surrounding.kind) for one in asked} == {
        ("ask", ("agent",), "agent"), ("caps", ("none", "own"), "none"), ("caps", ("none", "own"), "own"),
    }  # fmt: skip


def test_what_could_not_be_had_is_recorded_and_told_until_it_can(world: DreamingWorld) -> None:
    usual = world.reply

    def reply(asked: fx.Effect) -> inp.Input:
        said = usual(asked)
        missing = isinstance(asked, fx.ImagineScenario) and asked.surrounding.kind == "own" and world.scenarios < 6
        if missing and isinstance(said, inp.ScenarioImagined):
            without = replace(said.imagined, surrounding=NOTHING, left_out="own: there is none yet")
            return replace(said, imagined=without)
        return said

    world.reply = reply  # type: ignore[method-assign]
    while world.scenarios < 5:
        world.dream(1)
    course = world.state.dreams.courses["ask"]
    assert course.left_out == {"own": "own: there is none yet"}
    assert [e.left_out for e in world.of(ev.DreamImagined)][-2:] == ["own: there is none yet", ""]
    while world.scenarios < 8:
        world.dream(1)
    assert course.left_out == {} and world.of(ev.DreamImagined)[-1].surrounding.kind in KINDS


def test_a_scenario_is_the_same_one_in_another_surrounding(world: DreamingWorld) -> None:
    """Its surrounding is no part of what makes a scenario new."""
    world.imagines = lambda asked: "Empty the bin in the yard before the rain comes, please."
    world.dream(60)
    assert {e.cause for e in world.of(ev.DreamFailed)} <= {"repeats", "held-out"}
    sketches = [e.sketch for e in world.of(ev.DreamImagined)]
    assert len(sketches) == 1 and likeness(sketches[0], sketches[0]) == 1


def test_events_of_before_there_were_surroundings_say_that_nothing_stood_there() -> None:
    sketch = '{"grams":"","vector":""}'
    old = {
        "dream.requested": '{"dream":"d1","pattern":"ask","purpose":"held-out"}',
        "dream.imagined": f'{{"dream":"d1","scenario":[],"sketch":{sketch}}}',
        "dream.tested": '{"dream":"d1","pattern":"ask","mode":"bare","passed":true,"answer":"a","by":"regex"}',
        "pattern.settled": '{"pattern":"ask","step":1,"tests":{},"baseline":{},"dreams":1,"practices":1,"tokens":1}',
    }
    requested, imagined, tested, settled = (
        event_codec.decode_event(kind, 1, body.encode()) for kind, body in old.items()
    )
    assert isinstance(requested, ev.DreamRequested) and requested.surrounding.kind == "none"
    assert isinstance(imagined, ev.DreamImagined) and imagined.surrounding == NOTHING == Surrounding()
    assert isinstance(tested, ev.DreamTested) and tested.surrounding == "none"
    assert isinstance(settled, ev.PatternSettled) and settled.around == {}
