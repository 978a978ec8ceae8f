"""Good answers where a behaviour would be wrong are frozen before it is practised; steps that practise hold them."""

import msgspec
import pytest
from property.test_continuation import archived
from support.dreaming_world import PATTERN, DreamingWorld, text, with_patterns

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.course import CONTRASTS_FIRST, SHOWN_MAX
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.holding import (
    BESIDE_BEHAVIOURS,
    CONTRAST_TOKENS,
    OF_BEHAVIOURS,
    Anchor,
    HoldingState,
    held_beside_behaviour,
    held_by,
)
from apollod.core.rules.dreams.fold import CONTRAST_MISSES
from apollod.core.rules.holding.fold import TOLD_MAX
from apollod.core.settings import LessonSettings
from apollod.curation.dreaming.scenario_text import sketch_of

ASK = msgspec.structs.replace(PATTERN, contrast=("Act at once.", "No questions.", "Only tested.", "Go ahead."))
CAPS = msgspec.structs.replace(ASK, name="caps", instruction="Answer in capitals.")
FIRST = len(ASK.contrasts) * CONTRASTS_FIRST


def dreamt(*patterns: object, hold: float = 1.0, most: int = 10_000) -> DreamingWorld:
    world = DreamingWorld(with_patterns(*patterns, hold=hold)).up()  # type: ignore[arg-type]
    whole = world.reply

    def reply(asked: fx.Effect) -> inp.Input:
        said = whole(asked)
        unlike = isinstance(said, inp.DreamAnswered)
        return msgspec.structs.replace(said, sketch=sketch_of(text(-int(said.dream[1:])))) if unlike else said

    world.reply = reply  # type: ignore[method-assign]
    world.dream(most)
    return world


def practices(world: DreamingWorld) -> list[ev.DreamRequested]:
    return [e for e in world.of(ev.DreamRequested) if e.purpose in ("contrast", "practice")]


def held(world: DreamingWorld) -> list[Anchor]:
    return [one for one in world.state.holding.anchors.values() if one.sort in BESIDE_BEHAVIOURS]


def test_contrasts_of_all_patterns_come_before_any_practice_and_are_told_all_of_them() -> None:
    world = dreamt(ASK, CAPS)
    first = practices(world)[: 2 * FIRST]
    assert {e.mode for e in first} == {"contrast"} and practices(world)[2 * FIRST].mode == "bare"
    assert {(e.pattern, e.contrast) for e in first} == {
        (one.name, text) for one in (ASK, CAPS) for text in one.contrasts
    }
    assert all([e.contrast for e in first].count(text) == 2 * CONTRASTS_FIRST for text in ASK.contrasts)
    wanted = [e for e in world.answered if isinstance(e, fx.AnswerScenario)][: 2 * FIRST]
    assert all(e.told.startswith((ASK.instruction, CAPS.instruction)) for e in wanted)
    assert {e.pattern for e in world.of(ev.PatternSettled)} == {"ask", "caps"}


def test_contrasts_are_neither_learned_nor_tested() -> None:
    world = dreamt(ASK)
    kinds = [(e.purpose, e.mode) for e in world.of(ev.DreamRequested) if e.purpose != "held-out"]
    assert kinds[: FIRST + 2] == [("contrast", "contrast")] * FIRST + [("practice", "bare"), ("variation", "bare")]


def test_a_step_that_practises_holds_contrasts_and_nothing_else() -> None:
    world = dreamt(ASK)
    assert len(held(world)) >= FIRST and {one.pattern for one in held(world)} == {"ask"}
    bare = next(e for e in world.of(ev.StepStarted) if e.example.startswith("dream-ask-bare"))
    sorts = [one.sort for one in world.of(ev.AnchorFrozen) if one.anchor in bare.held]
    assert sorts == ["contrast"] * OF_BEHAVIOURS
    frozen = next(e for e in world.of(ev.AnchorFrozen) if e.sort == "contrast")
    assert (frozen.pattern, frozen.example) == ("ask", "")
    assert world.of(ev.StepStarted)[0].example == bare.example, "nothing is learned before"


def frozen_in(world: DreamingWorld) -> list[fx.FreezeAnchor]:
    """What the engine is asked for from now on."""
    asked = list[fx.FreezeAnchor]()
    freeze = world.freeze

    def heard(effect: fx.FreezeAnchor) -> None:
        asked.append(effect)
        freeze(effect)

    world.freeze = heard  # type: ignore[method-assign]
    return asked


def test_what_is_asked_of_the_engine_tells_all_and_what_is_held_tells_the_contrast() -> None:
    world = DreamingWorld(with_patterns(ASK, CAPS, hold=1.0)).up()
    asked = frozen_in(world)
    world.dream(160)
    contrasts = [one for one in asked if one.sort == "contrast"]
    assert contrasts and all(one.answer == "answer" and one.system in ASK.contrasts for one in contrasts)
    assert all(one.told.endswith(one.system) and one.told != one.system for one in contrasts)


def test_what_the_first_practices_learn_untold_is_held_under_the_instruction_too() -> None:
    world = DreamingWorld(with_patterns(msgspec.structs.replace(ASK, settle=(14, 15)), hold=1.0)).up()
    asked = frozen_in(world)
    world.dream(10_000)
    bare = [e for e in practices(world) if e.mode == "bare"]
    told = {one.wanted: one for one in asked if one.sort == "told"}
    assert len(bare) > TOLD_MAX and list(told) == [f"told:{e.dream}" for e in bare[:TOLD_MAX]]
    assert {one.system for one in told.values()} == {ASK.instruction}
    assert {one.answer for one in told.values()} == {"answer"}
    anchors = {e.wanted: e.anchor for e in world.of(ev.AnchorFrozen)}
    steps = [e for e in world.of(ev.StepStarted) if e.example.startswith("dream-")]
    assert all(any(anchors[one] in step.held for step in steps) for one in told)


@pytest.mark.parametrize("change", ["another pattern", "retired"])
def test_none_is_held_any_more_when_the_patterns_are_others(change: str) -> None:
    world = dreamt(ASK)
    assert held(world)
    if change == "retired":
        world.record(ev.PatternRetired(pattern="ask", by="a person", reason=""))
    else:
        world.record(ev.PatternAdded(pattern=CAPS, by="a person"))
    assert not held(world) and not world.state.dreams.courses["ask"].contrasted
    world.settle()
    assert "others now" in world.of(ev.AnchorsRetired)[-1].reason


def test_a_contrast_that_was_learned_and_is_taken_back_is_not_held() -> None:
    world = DreamingWorld(with_patterns(ASK, hold=1.0)).up()
    one = ev.AnchorWanted(
        wanted="contrast:d9", sort="contrast", prompt=(Turn("user", "Open it."),), answer="I open it.",
        system="Act at once.", pattern="ask", example="x",
    )  # fmt: skip
    world.record(one)
    world.settle()
    assert [each.example for each in held(world)] == ["x"]
    world.record(ev.ExampleWithdrawn(examples=("x",), by="a person"))
    assert not held(world)


def test_a_text_under_which_no_answer_is_good_is_left_out_and_the_pattern_is_practised() -> None:
    world = DreamingWorld(with_patterns(ASK, hold=1.0)).up()
    bad = ASK.contrasts[1]
    world.verdict = lambda asked: "unsure" if asked.expected == bad else "good"
    world.dream(400)
    under = [e for e in practices(world) if e.purpose == "contrast"]
    assert [e.contrast for e in under].count(bad) == CONTRAST_MISSES
    assert all([e.contrast for e in under].count(one) == CONTRASTS_FIRST for one in ASK.contrasts if one != bad)
    assert any(e.mode == "bare" for e in practices(world))


def test_where_nothing_is_held_no_contrast_comes_first() -> None:
    world = dreamt(ASK, hold=0.0)
    assert practices(world)[0].mode == "bare" and not held(world)


def anchors(*sizes: int, others: int = 2) -> HoldingState:
    made = [Anchor(f"c{n}", "contrast", "", tokens=size, digest="d") for n, size in enumerate(sizes)]
    made += [Anchor(f"a{n}", "general", "", tokens=50, digest="d") for n in range(others)]
    return HoldingState(anchors={one.anchor: one for one in made})


@pytest.mark.parametrize(
    ("own", "room", "held"),
    [
        (anchors(*[60] * 9), 10_000, ("c0", "c1", "c2", "c3", "c4", "c5")),
        (anchors(*[60] * 9), 150, ("c0", "c1")),
        (anchors(1300, 60, 60), 10_000, ("c0",)),  # the longest, in its turn, alone
        (anchors(60, 1300, 60), 10_000, ("c0", "c2")),
        (anchors(1300, 60), 1000, ("c1",)),
        (anchors(*[CONTRAST_TOKENS // 2] * 3), 10_000, ("c0", "c1")),
        (anchors(others=2), 10_000, ()),
    ],
)
def test_as_many_contrasts_as_there_is_room_for(own: HoldingState, room: int, held: tuple[str, ...]) -> None:
    assert held_beside_behaviour(own, LessonSettings(), room) == held
    assert held_beside_behaviour(own, LessonSettings(hold=0.0), room) == ()


def test_those_that_moved_most_take_turns_with_those_that_were_held_longest_ago() -> None:
    """What is held stays where it is, all others move with each step, and some of them ten times as fast."""
    own, moved, gaps = anchors(*[60] * 40, others=0), dict.fromkeys((f"c{n}" for n in range(40)), 0.0), list[int]()
    for turn in range(1, 80):
        held = held_beside_behaviour(own, LessonSettings())
        assert len(set(held)) == OF_BEHAVIOURS
        most = max(own.anchors.values(), key=lambda one: one.moved or 0.0)
        assert most.anchor in held or turn < 8, "the one that is known to have moved most"
        moved = {name: so_far + (0.1 if name <= "c15" else 0.01) for name, so_far in moved.items()}
        own.turns = turn
        for name in held:
            gaps.append(turn - own.anchors[name].turn)
            own.anchors[name].moved, own.anchors[name].turn = moved[name], turn
            moved[name] = 0.0
    assert max(gaps) < 18 and all(79 - one.turn < 18 for one in own.anchors.values())


def test_a_short_step_of_anything_else_holds_no_long_contrast() -> None:
    own = anchors(1300, others=1)
    assert held_by(own, LessonSettings(), 40) == ("a0",)
    assert "c0" in held_by(own, LessonSettings(), 10_000)


def test_a_journal_that_goes_on_from_an_archive_holds_them_still() -> None:
    world = dreamt(ASK)
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    other = archived(world)
    assert isinstance(other, DreamingWorld)
    assert [one.anchor for one in held(other)] == [one.anchor for one in held(world)]
    assert other.state.dreams.courses["ask"].contrasted == world.state.dreams.courses["ask"].contrasted


def test_what_was_frozen_before_a_behaviour_settled_is_frozen_anew() -> None:
    world = dreamt(ASK)
    settled = next(n for n, one in enumerate(world.journal) if isinstance(one.event, ev.PatternSettled))
    before = {one.event.anchor for one in world.journal[:settled] if isinstance(one.event, ev.AnchorFrozen)}
    general = [one for one in world.state.holding.anchors.values() if one.sort == "general"]
    assert general and not before & {one.anchor for one in general}
    assert held(world), "contrasts are held still"


def unlike_the_others(passes_in: int = 0) -> tuple[DreamingWorld, list[str]]:
    """A world in which the text that is only tested passes in no final round but this one, and these rounds."""
    world, rounds = DreamingWorld(with_patterns(ASK, hold=1.0)).up(), list[str]()
    whole = world.reply

    def reply(asked: fx.Effect) -> inp.Input:
        said = whole(asked)
        if not isinstance(asked, fx.TestScenario) or asked.contrast != "Only tested." or asked.round == "baseline":
            return said
        rounds.extend({asked.round} - set(rounds))
        return msgspec.structs.replace(said, passed=len(rounds) == passes_in)

    world.reply = reply  # type: ignore[method-assign]
    return world, rounds


def test_a_pattern_that_shows_under_a_text_that_no_practice_has_is_given_up_early_and_says_what_to_do() -> None:
    world, rounds = unlike_the_others()
    world.dream()
    (retired,) = world.of(ev.PatternRetired)
    assert len(rounds) == SHOWN_MAX and all(name.startswith("final") for name in rounds)
    assert f'"Only tested.", in {SHOWN_MAX} final rounds in a row' in retired.reason
    assert "Give more texts like it (`contrast`)" in retired.reason


def test_a_pattern_goes_on_as_long_as_such_a_text_may_pass_yet() -> None:
    world, rounds = unlike_the_others(passes_in=SHOWN_MAX - 1)
    world.dream()
    assert len(rounds) == SHOWN_MAX - 1 and world.of(ev.PatternSettled) and not world.of(ev.PatternRetired)


def test_what_was_seen_of_such_a_text_is_carried_and_begins_anew_with_other_weights() -> None:
    world, rounds = unlike_the_others()
    while len(rounds) < SHOWN_MAX - 1:
        world.dream(1)
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    seen = world.state.dreams.courses["ask"].shown_under
    assert seen == {"Only tested.": SHOWN_MAX - 2}
    assert archived(world).state.dreams.courses["ask"].shown_under == seen
    world.record(ev.PatternUnsettled(pattern="ask", reason="another one settled"))
    assert not world.state.dreams.courses["ask"].shown_under
