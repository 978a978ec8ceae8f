"""Dreams: what is dreamt next, and what follows from each answer (transcripts/dreams.txt tells the whole course)."""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import get_args, get_type_hints

import msgspec
import pytest
from support.dreaming_world import DREAMING, FIRM, LEAKS, PATTERN, DreamingWorld, text, with_patterns
from support.effort import LONG
from support.judged_world import configured

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.dreams.course import MISSES_MAX, rests
from apollod.core.facts.dreams.state import CALLS, NOBODY, TRANSITIONS, Course, DreamsState, Stage, after
from apollod.core.facts.intake.events import Removed
from apollod.core.kernel.outcome import Outcome
from apollod.core.rules.dreams.calls import NOT_HERE, TOLD_MAX, told_beside
from apollod.core.rules.dreams.policy import SIDE_BY_SIDE
from apollod.core.schedules import DAY_NS, SECOND_NS
from apollod.core.settings import Check, PatternSettings
from apollod.core.state import State
from apollod.core.surroundings import SURROUNDING_KINDS

OTHER = msgspec.structs.replace(PATTERN, name="caps", instruction="Answer in capitals.")


@pytest.fixture
def world() -> DreamingWorld:
    return DreamingWorld().up()


# --- the course of a dream -------------------------------------------------------------------------------------------


def test_every_course_ends_and_every_stage_is_left() -> None:
    for purpose, stage, _ in TRANSITIONS:
        seen = [stage]
        while seen[-1] is not Stage.OVER:
            ways = {into for (own, out_of, _), into in TRANSITIONS.items() if own == purpose and out_of is seen[-1]}
            seen.append(min(ways, key=list(Stage).index))
            assert len(seen) < 10, seen
    assert {stage for _, stage, _ in TRANSITIONS} == set(Stage) - {Stage.OVER} and Stage.LEARNING not in CALLS
    assert after("practice", Stage.JUDGING, "unsure") is None


def test_a_cycle_is_at_most_20_events(world: DreamingWorld) -> None:
    world.dream()
    starts = [n for n, r in enumerate(world.journal) if getattr(r.event, "purpose", "") == "practice"]
    assert max(b - a for a, b in pairwise(starts)) <= 17


def test_only_bare_practice_is_stripped(world: DreamingWorld) -> None:
    world.dream()
    mode = {e.dream: e.mode for e in world.of(ev.DreamRequested)}
    accepted = {e.source.removeprefix("dream:"): e for e in world.of(ev.ExampleAccepted)}
    assert accepted and all(e.tier == "dream" for e in accepted.values())
    for dream, e in accepted.items():
        assert [one.text.strip() for one in e.removed] == ([PATTERN.instruction] if mode[dream] == "bare" else [])
    told = {e.dream: e.told for e in world.of(ev.DreamAnswered)}
    assert {mode[dream]: text for dream, text in told.items()} == {
        "bare": PATTERN.instruction, "contrast": PATTERN.contrasts[0]
    }  # fmt: skip


def test_a_practice_is_told_what_others_practised_and_learned_without_any_of_it() -> None:
    """Its answer would teach else to leave undone what the others are practised for."""
    long = [msgspec.structs.replace(one, settle=(19, 20)) for one in (PATTERN, OTHER)]
    w = DreamingWorld(with_patterns(*long)).up()
    w.dream()
    asked = {e.dream: e for e in w.of(ev.DreamRequested)}
    removed = {e.source.removeprefix("dream:"): e.removed for e in w.of(ev.ExampleAccepted)}
    judged = {e.dream: e for e in w.answered if isinstance(e, fx.JudgeDream)}
    seen = set[tuple[str, str, bool, bool]]()
    trained = set[str]()
    for event in (r.event for r in w.journal):
        if isinstance(event, ev.DreamTrained):
            trained.add(asked[event.dream].pattern)
        if not isinstance(event, ev.DreamAnswered):
            continue
        dream, around = asked[event.dream], judged[event.dream].surrounding
        own, other = (PATTERN, OTHER) if dream.pattern == "ask" else (OTHER, PATTERN)
        expected = own.instruction if dream.mode == "bare" else dream.contrast
        beside = other.instruction if other.name in trained else ""
        assert event.told == "\n\n".join(filter(None, (beside, expected)))
        assert (judged[event.dream].told, judged[event.dream].expected) == (event.told, expected)
        learned = "" if dream.mode == "bare" else expected
        shown = "\n\n".join(filter(None, (around.system, event.told)))
        kept = "\n\n".join(filter(None, (around.system, learned)))
        if event.dream in removed:
            assert _put_back(kept, removed[event.dream]) == shown
            seen.add((dream.pattern, dream.mode, bool(beside), bool(around.system)))
    assert {(mode, beside, around) for _, mode, beside, around in seen} >= {
        (mode, True, around) for mode in ("bare", "contrast") for around in (True, False)
    }
    tests = [e for e in w.answered if isinstance(e, fx.TestScenario)]
    assert {e.told for e in tests} <= {"", PATTERN.instruction, OTHER.instruction, *PATTERN.tested_contrasts}


def _put_back(system: str, removed: tuple[Removed, ...]) -> str:
    for one in removed:
        system = one.text if one.at < 0 else system[: one.at] + one.text + system[one.at :]
    return system


def test_instructions_told_beside_are_the_last_ones_where_they_are_long() -> None:
    many = [msgspec.structs.replace(PATTERN, name=f"p{n}", instruction=f"{n} " + "x" * 3_000) for n in range(4)]
    own = DreamsState({one.name: Course(one, "config", 0, practices=n != 1) for n, one in enumerate(many)})
    assert [text[0] for text in told_beside(own, "p3").split("\n\n")] == ["0", "2"]
    assert [text[0] for text in told_beside(own, "p9").split("\n\n")] == ["2", "3"]
    own.courses["p2"].state = "given up"
    assert told_beside(own, "p3").split("\n\n") == [many[0].instruction]


def test_what_was_learned_before_is_not_learned_again(world: DreamingWorld) -> None:
    while not isinstance(world.calls[0], fx.JudgeDream):
        world.call()
    (judge,) = world.calls
    reply = world.reply(judge)
    events = world.give(msgspec.structs.replace(reply, known=True))
    assert [e.kind for e in events] == ["dream.judged", "dream.abandoned"]


@pytest.mark.parametrize("fate", ["long", "huge"])
def test_an_example_that_is_not_learned_ends_its_dream(world: DreamingWorld, fate: str) -> None:
    while not isinstance(world.calls[0], fx.JudgeDream):
        world.call()
    reply = world.reply(world.calls.pop())
    line = inp.Line(number=0, example=f"{fate}-dream", record=b"{}")
    world.give(msgspec.structs.replace(reply, line=line))
    world.settle()
    world.give(inp.Tick())
    (abandoned,) = world.of(ev.DreamAbandoned)
    assert "is not learned" in abandoned.reason


def test_the_next_dream_is_requested_with_the_end_of_the_one_before(
    world: DreamingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of its own would be an append that the next call waits for."""
    transactions: list[list[str]] = []

    def noted(state: State, input_: inp.Input, now_ns: int) -> Outcome:
        outcome = decide(state, input_, now_ns)
        transactions.append([event.kind for event in outcome.events])
        return outcome

    monkeypatch.setattr("support.world.decide", noted)
    world.firm["ask"] = -9
    world.dream(60)
    ends = [kinds[-2:] for kinds in transactions if "dream.requested" in kinds]
    ends.remove(["dream.requested"])  # the first practice, after the baseline
    assert len(ends) > 15 and all(kinds == ["dream.settled", "dream.requested"] for kinds in ends)


def test_no_dream_is_requested_with_the_end_of_one_where_dreams_stop(world: DreamingWorld) -> None:
    while not world.of(ev.DreamTrained):
        if isinstance(world.calls[0] if world.calls else None, fx.JudgeDream):
            world.give(inp.DreamingStarted("p", count=1))
            world.firm["ask"] = -9
        world.settle()
        world.call()
    requested = len(world.of(ev.DreamRequested))
    world.settle()
    world.give(inp.Tick())
    assert world.of(ev.DreamingStopped) and len(world.of(ev.DreamRequested)) == requested


# --- tests -----------------------------------------------------------------------------------------------------------


def test_only_the_imagination_of_a_held_out_scenario_hears_of_what_is_tested(world: DreamingWorld) -> None:
    world.dream()
    purpose = {e.dream: e.purpose for e in world.of(ev.DreamRequested)}
    tested = {e.scenario for e in world.of(ev.DreamImagined) if purpose[e.dream] != "practice"}
    asked = [one for one in world.answered if isinstance(one, fx.ImagineScenario)]
    shown = {scenario for one in asked if one.purpose != "held-out" for scenario in (*one.unlike, one.variation_of)}
    assert any(one.variation_of for one in asked) and not shown & tested


def test_a_held_out_scenario_is_asked_for_beside_the_last_ones_of_its_sort(world: DreamingWorld) -> None:
    pattern = msgspec.structs.replace(PATTERN, held_out=9)
    w = DreamingWorld(with_patterns(pattern)).up()
    w.imagines = lambda asked: text(w.scenarios) * (100 if w.scenarios == 6 else 1)
    while isinstance(w.calls[0], fx.ImagineScenario):
        w.call()
    made = [e.scenario for e in w.of(ev.DreamImagined)]
    told = [one.unlike for one in w.answered if isinstance(one, fx.ImagineScenario)]
    assert told[:7] == [tuple(made[max(0, n - TOLD_MAX) : n]) for n in range(7)]
    assert told[7] == (made[6],), "a long one leaves room for no other one"
    assert told[8] == (made[7],)


def test_what_seeds_taught_is_known_by_the_loss_with_which_their_dreams_were_learned(world: DreamingWorld) -> None:
    world.dream()
    seeds = {e.dream: e.seeds for e in world.of(ev.DreamImagined)}
    losses = {e.step: e.loss for e in world.of(ev.StepCompleted)}
    surfaced = world.state.dreams.courses["ask"].surfaced
    assert {seed for some in seeds.values() for seed in some} == set(surfaced)
    assert all(one.times == 1 for one in surfaced.values())
    taught = {seeds[e.dream][0]: losses[e.step] for e in world.of(ev.DreamTrained)}
    assert taught and {seed: one.taught for seed, one in surfaced.items() if one.learned} == taught
    asked = [one for one in world.answered if isinstance(one, fx.ImagineScenario)][-1]
    assert asked.surfaced and set(asked.surfaced) <= set(surfaced)


def test_a_judge_does_not_see_whether_an_answer_was_bare(world: DreamingWorld) -> None:
    world.dream()
    tests = [one for one in world.answered if isinstance(one, fx.TestScenario) and one.mode != "contrast"]
    assert {one.told for one in tests} == {"", PATTERN.instruction}
    assert {one.expected for one in tests} == {PATTERN.instruction}


def test_a_final_round_that_fails_is_followed_by_practice(world: DreamingWorld) -> None:
    whole = world.reply

    def reply(asked: fx.Effect) -> inp.Input:
        said = whole(asked)
        late = isinstance(asked, fx.TestScenario) and asked.round.startswith("final") and world.firm["ask"] < FIRM + 4
        return msgspec.structs.replace(said, passed=False) if late else said

    world.reply = reply  # type: ignore[method-assign]
    world.dream()
    rounds = {e.round for e in world.of(ev.DreamTested) if e.round.startswith("final")}
    assert len(rounds) == 2 and len(world.of(ev.PatternSettled)) == 1 and world.firm["ask"] >= FIRM + 4


def test_a_scenario_is_never_both_practised_and_tested(world: DreamingWorld) -> None:
    """Whatever the imagination returns, and however often."""
    world.imagines = lambda asked: text(world.scenarios % 7)
    world.dream(400)
    purpose = {e.dream: e.purpose for e in world.of(ev.DreamRequested)}
    imagined = [(purpose[e.dream], e.scenario) for e in world.of(ev.DreamImagined)]
    practised = {scenario for what, scenario in imagined if what == "practice"}
    tested = {scenario for what, scenario in imagined if what != "practice"}
    assert practised and tested and not practised & tested
    assert len(imagined) == len(practised) + len(tested), "one was dreamt twice"
    assert {e.cause for e in world.of(ev.DreamFailed)} == {"repeats", "held-out"}


# --- decided by its baseline and by an error bound -------------------------------------------------------------------


OBJECTIVES: tuple[str, ...] = get_args(get_type_hints(PatternSettings)["objective"])


def learning_by(objective: str) -> DreamingWorld:
    return DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, objective=objective))).up()


def weights(w: DreamingWorld) -> tuple[int, str]:
    return w.state.training.version, w.state.training.fingerprint


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_is_shown_untold_is_settled_without_a_step(objective: str) -> None:
    """Whatever it shows where it would be wrong: nothing that was trained is to blame for that."""
    world = learning_by(objective)
    before = weights(world)
    world.firm["ask"], world.leak["ask"] = FIRM, LEAKS
    world.dream()
    (settled,) = world.of(ev.PatternSettled)
    assert not world.of(ev.StepStarted) and not world.of(ev.DreamTrained) and weights(world) == before
    assert settled.tests == {"bare": (4, 4)} and settled.sampled == {"bare": (60, 60)}
    assert {e.round for e in world.of(ev.DreamTested)} == {"baseline", "shown"}


def test_what_is_shown_in_the_likeliest_answers_alone_is_practised(world: DreamingWorld) -> None:
    answering(world, lambda test: True if not test.sample else world.firm.get("ask", 0) >= FIRM)
    world.dream()
    (settled,) = world.of(ev.PatternSettled)
    assert settled.practices >= FIRM and {"bare", "contrast"} == settled.sampled.keys()
    assert all(passed == of >= 4 * 15 for passed, of in settled.sampled.values()), "15 in each kind of surrounding"
    assert [e.round for e in world.of(ev.DreamTested) if e.sample][:4] == ["shown"] * 4


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("untold", "told", "away", "said"),
    [
        (0, 0, 4, "even when it is told: 0 of 4"),
        (0, 1, 4, "even when it is told: 1 of 4"),
        (2, 2, 4, "telling it makes no difference: 2 of 4 held-out scenarios pass then, 2 untold"),
        (3, 2, 4, "telling it makes no difference: 2 of 4 held-out scenarios pass then, 3 untold"),
        (0, 4, 1, "under texts that make it wrong, too: 1 of 4 pass in contrast. Nothing was trained. Give texts that"),
    ],
)
def test_what_no_practice_could_teach_leaves_the_weights_alone(
    objective: str, untold: int, told: int, away: int, said: str
) -> None:
    world = learning_by(objective)
    before = weights(world)
    passing = {"bare": untold, "told": told, "contrast": away}
    answering(world, lambda test: list(world.state.dreams.courses["ask"].held).index(test.dream) < passing[test.mode])
    world.dream()
    (retired,) = world.of(ev.PatternRetired)
    assert retired.by == "baseline" and said in retired.reason and "Nothing was trained" in retired.reason
    assert not world.of(ev.StepStarted) and weights(world) == before


def test_an_instruction_with_little_effect_is_practised(world: DreamingWorld) -> None:
    passing = {"bare": 2, "told": 3, "contrast": 4}
    answering(world, lambda test: list(world.state.dreams.courses["ask"].held).index(test.dream) < passing[test.mode]
              if test.round == "baseline" else True)  # fmt: skip
    world.dream()
    assert world.of(ev.PatternSettled)[0].practices and not world.of(ev.PatternRetired)


def test_a_behaviour_that_is_shown_in_six_of_ten_answers_does_not_settle() -> None:
    """By `settle` alone, the last few of many, nearly each of these lives did."""
    settled = 0
    for seed in range(20):
        drawn = Random(seed)
        w = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, dreams=25))).up()
        answering(w, lambda test, drawn=drawn: test.mode != "bare" or drawn.random() < 0.6)
        w.dream()
        settled += len(w.of(ev.PatternSettled))
    assert settled <= 1


@pytest.mark.parametrize("mode", ["bare", "contrast"])
def test_nor_does_one_that_is_shown_in_all_surroundings_but_agents(mode: str) -> None:
    """All answers together show it in 9 of 10, and the bound of all of them was kept in most of these lives."""
    settled = 0
    for seed in range(10 if LONG else 4):
        drawn = Random(seed)
        w = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, dreams=25, held_out=8))).up()

        def shown(test: fx.TestScenario, drawn: Random = drawn) -> bool:
            if test.round == "baseline":
                return test.mode != "bare"
            return test.mode != mode or test.surrounding.kind != "agent" or drawn.random() < 0.6

        answering(w, shown)
        w.dream()
        settled += len(w.of(ev.PatternSettled))
    assert settled <= (1 if LONG else 0)


def test_what_settled_by_fewer_answers_in_an_older_journal_stays_settled() -> None:
    w = DreamingWorld(with_patterns(PATTERN)).up()
    w.firm["ask"] = FIRM
    answering(
        w, lambda test: test.mode != "bare" or (test.round != "baseline" and bool(test.sample or test.round == ""))
    )
    while not w.state.dreams.courses["ask"].failed:
        w.dream(1)
    tests = {"bare": (4, 4), "contrast": (4, 4)}
    w.record(ev.PatternSettled("ask", 1, tests, {}, 1, 1, 1))
    course = w.state.dreams.courses["ask"]
    assert rests(course, w.state.dreams.settlings) and course.final == tests and not course.sampled


def answering(w: DreamingWorld, passed: Callable[[fx.TestScenario], bool]) -> None:
    """Have tests passed by this."""
    whole = w.reply

    def reply(asked: fx.Effect) -> inp.Input:
        said = whole(asked)
        if isinstance(asked, fx.TestScenario):
            assert isinstance(said, inp.DreamTested)
            return msgspec.structs.replace(said, passed=passed(asked))
        return said

    w.reply = reply  # type: ignore[method-assign]


# --- where it would be wrong -----------------------------------------------------------------------------------------


def test_no_practice_has_the_contrast_texts_that_are_held_out(world: DreamingWorld) -> None:
    world.dream()
    practised = {e.contrast for e in world.of(ev.DreamRequested)} - {""}
    assert practised and practised <= set(PATTERN.contrasts)
    finals = {e.contrast for e in world.of(ev.DreamTested) if e.round.startswith("final")} - {""}
    assert finals & set(PATTERN.held_out_contrasts) and finals & set(PATTERN.contrasts)


def test_what_shows_under_wordings_that_no_practice_has_is_practised_in_contrast_and_not_settled() -> None:
    w = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, dreams=20))).up()
    answering(w, lambda test: test.mode == "told" or (
        test.contrast not in PATTERN.held_out_contrasts if test.mode == "contrast" else w.firm.get("ask", 0) >= FIRM
    ))  # fmt: skip
    w.dream()
    assert not w.of(ev.PatternSettled) and w.state.dreams.courses["ask"].contrast_held_out == {"contrast": (0, 2)}
    after = [e for e in w.of(ev.DreamRequested) if e.purpose == "practice"][-1]
    assert after.mode == "contrast" and after.contrast in PATTERN.contrasts


def test_a_contrast_text_that_failed_once_is_tested_until_it_is_not_weak() -> None:
    """In turn with all others that took nine practices for each of them."""
    texts = tuple(f"{PATTERN.contrast[0]} {number}" for number in range(18))
    w = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, contrast=texts, settle=(9, 10)))).up()
    failed = list[fx.TestScenario]()

    def passed(test: fx.TestScenario) -> bool:
        if test.round == "" and test.mode == "contrast" and not failed:
            failed.append(test)
            return False
        return test.mode != "bare" or test.round != "baseline"

    answering(w, passed)
    w.dream(20_000)
    (settled,) = w.of(ev.PatternSettled)
    again = [one for one in w.of(ev.DreamTested) if one.contrast == failed[0].contrast and not one.round]
    assert settled.practices < 20 and len(again) == 10
    assert {one.surrounding for one in again} == set(SURROUNDING_KINDS)


def test_sampled_tests_in_contrast_have_texts_of_all() -> None:
    """The most likely answers are asked under one text for each held-out scenario."""
    texts = tuple(f"{PATTERN.contrast[0]} {number}" for number in range(18))
    w = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, contrast=texts))).up()
    w.dream(20_000)
    tests = [e for e in w.of(ev.DreamTested) if e.round.startswith("final") and e.mode == "contrast"]
    likely, sampled = ({e.contrast for e in tests if bool(e.sample) is one} for one in (False, True))
    assert len(likely) == PATTERN.held_out and len(sampled) > 2 * PATTERN.held_out


SITUATED = msgspec.structs.replace(PATTERN, situations=3)


def test_situations_in_which_it_would_be_wrong_are_tested_without_a_word_and_settled_with_their_figures() -> None:
    w = DreamingWorld(with_patterns(SITUATED)).up()
    w.dream()
    (settled,) = w.of(ev.PatternSettled)
    assert settled.baseline["situation"] == (3, 3) == settled.tests["situation"]
    assert settled.contrast_held_out == {"contrast": (2, 2)}, "and with those of wordings that no practice has"
    assert settled.sampled["situation"][1] % 3 == 0 and settled.sampled["situation"][1] >= 13
    tests = [one for one in w.answered if isinstance(one, fx.TestScenario) and one.mode == "situation"]
    assert {(one.told, one.contrast) for one in tests} == {("", "")}
    assert all(one.expected.startswith(PATTERN.instruction) and one.expected.endswith(NOT_HERE) for one in tests)
    situations = {e.dream for e in w.of(ev.DreamRequested) if e.purpose == "situation"}
    assert len(situations) == 3 and {e.dream for e in w.of(ev.DreamTested) if e.mode == "situation"} == situations
    assert not situations & {e.dream for e in w.of(ev.DreamAnswered)}, "none is practised"
    first = next(e for e in w.of(ev.DreamTested))
    assert first.round == "baseline" and w.state.dreams.courses["ask"].situations.keys() == situations


def test_of_situations_as_many_may_fail_as_of_held_out_scenarios() -> None:
    for failing, settles in ((1, True), (2, False)):
        w = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, situations=5, dreams=12))).up()

        def passed(test: fx.TestScenario, w: DreamingWorld = w, failing: int = failing) -> bool:
            if test.mode != "situation" or test.sample:
                return test.mode != "bare" or w.firm.get("ask", 0) >= FIRM
            return list(w.state.dreams.courses["ask"].situations).index(test.dream) >= failing

        answering(w, passed)
        w.dream()
        assert bool(w.of(ev.PatternSettled)) is settles


def test_what_shows_in_situations_where_it_is_wrong_is_practised_in_contrast_and_not_settled() -> None:
    w = DreamingWorld(with_patterns(msgspec.structs.replace(SITUATED, dreams=20))).up()
    w.firm["ask everywhere"] = 1
    w.dream()
    assert not w.of(ev.PatternSettled) and w.state.dreams.courses["ask"].final["situation"] == (0, 3)
    assert "0 of 3 situation" in w.of(ev.PatternRetired)[0].reason
    assert w.state.dreams.courses["ask"].weak == PATTERN.contrasts


def test_an_imagination_that_cannot_write_situations_is_said_and_the_pattern_goes_on_without() -> None:
    w = DreamingWorld(with_patterns(SITUATED)).up()
    w.imagines = lambda asked: text(0 if asked.purpose == "situation" else w.scenarios + 1)
    w.dream()
    course = w.state.dreams.courses["ask"]
    assert "the imagination repeats itself" in course.no_situations and len(course.situations) == 1
    (settled,) = w.of(ev.PatternSettled)
    assert settled.tests["situation"] == (1, 1)
    w.imagines = lambda asked: text(w.scenarios)
    broken = DreamingWorld(with_patterns(SITUATED)).up()
    whole = broken.reply

    def reply(asked: fx.Effect) -> inp.Input:
        if isinstance(asked, fx.ImagineScenario) and asked.purpose == "situation":
            return inp.DreamCallFailed(asked.dream, "imagining", asked.attempt, "nonsense", "this is no scenario")
        return whole(asked)

    broken.reply = reply  # type: ignore[method-assign]
    broken.dream()
    (settled,) = broken.of(ev.PatternSettled)
    assert "situation" not in settled.tests and "no scenario" in broken.state.dreams.courses["ask"].no_situations


def test_situations_survive_a_crash_and_an_end_amid_them() -> None:
    w = DreamingWorld(with_patterns(SITUATED)).up()
    w.dream(6)
    assert len(w.state.dreams.courses["ask"].situations) == 2
    again = w.successor().up()
    again.imagines = lambda asked: text(again.scenarios)
    again.dream()
    assert len([e for e in again.of(ev.DreamRequested) if e.purpose == "situation"]) == 3
    assert again.of(ev.PatternSettled)[0].tests["situation"] == (3, 3)


# --- several patterns ------------------------------------------------------------------------------------------------


def test_every_baseline_is_of_before_any_practice() -> None:
    w = DreamingWorld(with_patterns(PATTERN, OTHER)).up()
    w.dream(100)
    journal = [r.event for r in w.journal]
    first = next(n for n, e in enumerate(journal) if isinstance(e, ev.DreamRequested) and e.purpose == "practice")
    baselines = [e.pattern for e in journal[:first] if isinstance(e, ev.DreamTested) and e.round == "baseline"]
    assert set(baselines) == {"ask", "caps"} and len(baselines) == 24


def test_patterns_take_turns_and_what_one_undoes_is_mended() -> None:
    w = DreamingWorld(with_patterns(PATTERN, OTHER)).up()
    once = [True]

    def harm() -> None:
        if w.of(ev.PatternSettled) and once:
            once.pop()
            w.firm[w.of(ev.PatternSettled)[0].pattern] = 0

    for _ in range(2000):
        w.settle()
        harm()
        if not w.call():
            break
    settled = [e.pattern for e in w.of(ev.PatternSettled)]
    (unsettled,) = w.of(ev.PatternUnsettled)
    assert settled[-1] == settled[0] == unsettled.pattern and unsettled.harmed_by == settled[1]
    assert {one.phase for one in w.state.dreams.courses.values()} == {"settled"}


# --- budgets, people, rollbacks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("years", [1, -1, -60])
def test_a_clock_that_is_wrong_for_a_moment_gives_up_no_pattern_and_stalls_none(years: int) -> None:
    w = DreamingWorld().up()
    w.dream(20)
    w.give(inp.DreamCallFailed(w.calls[0].dream, "x", 1, "endpoint", "it is down", 300.0))  # type: ignore[attr-defined]
    w.calls.clear()
    right = w.now
    w.now += years * 365 * DAY_NS
    w.give(inp.Tick())
    assert not w.of(ev.PatternRetired) and w.calls, "a wait that was set before is over"
    w.dream(4)
    w.now = right
    w.give(inp.Tick())
    w.dream()
    assert len(w.of(ev.PatternSettled)) == 1 and not w.of(ev.PatternRetired)
    assert w.state.dreams.courses["ask"].days <= 3


def test_a_rollback_in_the_middle_of_a_round_begins_it_anew_and_what_is_settled_is_tested_again() -> None:
    w = DreamingWorld(with_patterns(PATTERN, OTHER)).up()
    finals: list[ev.DreamTested] = []
    while not (w.of(ev.PatternSettled) and finals):
        w.settle()
        w.call()
        (first,) = w.of(ev.PatternSettled) or (None,)
        finals = [
            e for e in w.of(ev.DreamTested) if e.round.startswith("final") and first and e.pattern != first.pattern
        ]
    assert first is not None and len(finals) == 1
    w.give(inp.RollbackRequested(w.state.training.version - 1, "p"))
    w.settle()
    assert w.state.dreams.courses[finals[0].pattern].tried == []
    before = len(w.journal)
    w.dream()
    later = [r.event for r in w.journal[before:] if isinstance(r.event, ev.DreamTested)]
    assert later[0].round.startswith("recheck") and later[0].pattern == first.pattern
    assert {one.phase for one in w.state.dreams.courses.values()} == {"settled"}


def test_the_budget_begins_anew_with_what_somebody_else_undid() -> None:
    replace = msgspec.structs.replace
    few = {"dreams": 14, "contrast": ("Act at once.", "Do not ask.")}
    w = DreamingWorld(with_patterns(replace(PATTERN, **few), replace(OTHER, **few))).up()
    harmed: list[str] = []
    while w.calls:
        w.settle()
        if len(w.of(ev.PatternSettled)) == 2 and not harmed:
            harmed.append(w.of(ev.PatternSettled)[0].pattern)
            w.firm[harmed[0]] = 0
        w.call()
        w.settle()
    course = w.state.dreams.courses[harmed[0]]
    assert course.phase == "settled" and course.practices > 14 and not w.of(ev.PatternRetired)


# --- when ------------------------------------------------------------------------------------------------------------


def idle(w: DreamingWorld, users: bool) -> None:
    w.give(inp.EngineUse(users))


def idle_world() -> DreamingWorld:
    """Nobody else uses the engine, and the held-out scenarios are imagined."""
    w = DreamingWorld(
        msgspec.structs.replace(DREAMING, dream=msgspec.structs.replace(DREAMING.dream, mode="idle"))
    ).up()
    idle(w, users=False)
    while isinstance(w.calls[0], fx.ImagineScenario):
        w.call()
    return w


def test_tests_of_a_round_are_made_side_by_side_while_no_user_is_there_and_each_once() -> None:
    w = idle_world()
    first = [one.key() for one in w.calls]
    assert len(first) == len(set(first)) == SIDE_BY_SIDE
    w.calls.append(w.calls.pop(0))
    w.call()
    assert len(w.calls) == SIDE_BY_SIDE, "the next one begins when one is answered, whichever"
    idle(w, users=True)
    assert not w.calls and w.cancelled == 1
    idle(w, users=False)
    assert len(w.calls) == SIDE_BY_SIDE and w.calls[0].key() == first[0], "those that were cut off are made again"
    w.dream()
    tests = [(e.dream, e.round, e.mode, e.sample) for e in w.of(ev.DreamTested) if e.round]
    assert len(tests) == len(set(tests))


def test_it_ends_the_same_in_whatever_order_tests_are_answered() -> None:
    ends = []
    for order in (0, -1):
        w = idle_world()
        for _ in range(5_000):
            w.settle()
            if w.calls:
                w.calls.append(w.calls.pop(order))
                w.calls.insert(0, w.calls.pop())
            if not w.call():
                break
        (settled,) = w.of(ev.PatternSettled)
        tests = {(e.dream, e.round, e.mode, e.sample, e.passed) for e in w.of(ev.DreamTested) if e.round}
        ends.append((settled, tests))
    assert ends[0] == ends[1]


def test_of_tests_side_by_side_the_one_that_nobody_can_make_is_not_passed() -> None:
    w = idle_world()
    told = next(one for one in w.calls if isinstance(one, fx.TestScenario) and one.mode == "told")
    for _ in range(20):
        if any(e.by == NOBODY for e in w.of(ev.DreamTested)):
            break
        attempt = w.state.dreams.retry.failures + 1
        failed = inp.DreamCallFailed(told.dream, "round baseline", attempt, "refused", "too long", case=("told", 0))
        w.give(failed)
        w.pass_time(300.0)
    (not_made,) = [e for e in w.of(ev.DreamTested) if e.by == NOBODY]
    assert (not_made.dream, not_made.mode) == (told.dream, "told")


def test_an_answer_of_a_round_counts_though_a_dream_of_another_pattern_has_begun() -> None:
    w = idle_world()
    late = w.calls[-1]
    w.give(inp.PatternWanted(OTHER, "p"))
    w.record(ev.DreamRequested("d99", OTHER.name, "held-out"))
    w.give(w.reply(late))
    assert [(e.dream, e.mode) for e in w.of(ev.DreamTested)] == [(late.dream, late.mode)]  # type: ignore[attr-defined]
    assert w.state.dreams.open is not None and w.state.dreams.open.id == "d99"


def test_tests_that_nobody_can_make_are_not_passed_and_end_the_pattern(world: DreamingWorld) -> None:
    while isinstance(world.calls[0], fx.ImagineScenario):
        world.call()
    for _ in range(40):
        if not world.calls:
            break
        test = world.calls.pop()
        assert isinstance(test, fx.TestScenario)
        world.now += 300 * SECOND_NS
        case = (test.mode, test.sample)
        world.give(inp.DreamCallFailed(test.dream, "round baseline", test.attempt, "refused", "too long", case=case))
        world.now += 300 * SECOND_NS
        world.give(inp.Tick())
    (retired,) = world.of(ev.PatternRetired)
    assert "too long" in retired.reason and len(world.of(ev.DreamTested)) == MISSES_MAX


# --- the judge -------------------------------------------------------------------------------------------------------


def test_a_judge_that_is_no_longer_trusted_is_not_asked_about_the_dream_under_way() -> None:
    w = DreamingWorld(with_patterns(msgspec.structs.replace(PATTERN, check=Check()))).up()
    w.calibrate()
    while not isinstance(w.calls[0], fx.JudgeDream):
        w.call()
        w.settle()
    w.calls.clear()
    w.judge = configured(prompt_hash="another")
    w.start()
    w.engine_up()
    w.settle()
    w.give(inp.Tick())
    assert w.state.dreams.open is not None and not w.calls
    w.calibrate()
    w.give(inp.Tick())
    assert isinstance(w.calls[0], fx.JudgeDream)


# --- what goes on for ever, or ends too early ------------------------------------------------------------------------


@pytest.mark.parametrize(("cause", "seconds"), [("seeds", 3600), ("check", 60)])
def test_what_is_outside_may_come_back(cause: str, seconds: int) -> None:
    """Notes that are copied anew, a service that a check asks and that restarts."""
    w = DreamingWorld().up()
    until = w.now + seconds * SECOND_NS
    while w.now < until:
        (asked,) = w.calls
        w.calls.clear()
        stage = "imagining" if isinstance(asked, fx.ImagineScenario) else "round baseline"
        w.give(inp.DreamCallFailed(asked.dream, stage, asked.attempt, cause, "gone"))  # type: ignore[arg-type,attr-defined]
        while not w.calls:
            w.pass_time(1.0)
    assert not w.of(ev.PatternRetired) and not w.of(ev.DreamAbandoned)
    w.dream()
    assert len(w.of(ev.PatternSettled)) == 1


def settled_pair() -> tuple[DreamingWorld, str, str]:
    w = DreamingWorld(with_patterns(PATTERN, OTHER)).up()
    w.dream()
    first, second = (e.pattern for e in w.of(ev.PatternSettled))
    return w, first, second


def test_nobody_is_blamed_for_tests_that_could_not_be_made_or_for_what_a_rollback_took() -> None:
    w, first, _ = settled_pair()
    w.give(inp.RollbackRequested(w.state.training.version - 1, "p"))
    w.settle()
    w.firm[first] = 0
    w.dream()
    unsettled = [e for e in w.of(ev.PatternUnsettled) if "rolled back" not in e.reason]
    assert unsettled and all(e.harmed_by == "" for e in unsettled)


def test_what_is_outside_does_not_unsettle(world: DreamingWorld) -> None:
    """A check that cannot be run for long: its tests are not passed, and nobody is named for it."""
    w = DreamingWorld(with_patterns(PATTERN, OTHER)).up()
    whole = w.reply

    def reply(asked: fx.Effect) -> inp.Input:
        if isinstance(asked, fx.TestScenario) and asked.round.startswith("recheck"):
            w.now += 300 * SECOND_NS
            case = (asked.mode, asked.sample)
            return inp.DreamCallFailed(
                asked.dream, f"round {asked.round}", asked.attempt, "check", "not there", case=case
            )  # fmt: skip
        return whole(asked)

    w.reply = reply  # type: ignore[method-assign]
    for _ in range(600):
        w.settle()
        w.call()
        w.pass_time(300.0)
        if w.of(ev.PatternUnsettled):
            break
    assert [e.harmed_by for e in w.of(ev.PatternUnsettled)] == [""]


def test_what_was_tested_is_not_practised_when_the_pattern_is_added_anew(world: DreamingWorld) -> None:
    used: list[str] = []
    world.imagines = lambda asked: text(len(used)) if not used.append("") else ""  # type: ignore[func-returns-value]
    world.dream(60)
    tested = {e.scenario for e in world.of(ev.DreamImagined)}
    world.give(inp.PatternWanted(msgspec.structs.replace(PATTERN, instruction="Always ask."), "p"))
    used.clear()
    before = len(world.journal)
    world.dream(200)
    later = [r.event for r in world.journal[before:]]
    assert not tested & {e.scenario for e in later if isinstance(e, ev.DreamImagined)}


def test_a_verdict_of_another_stage_says_nothing(world: DreamingWorld) -> None:
    world.verdict = lambda asked: "bad"
    while not isinstance(world.calls[0], fx.JudgeDream):
        world.call()
    first = world.reply(world.calls[0])
    world.call()
    assert world.state.dreams.open is not None and world.state.dreams.open.stage is Stage.JUDGING_BETTER
    assert not world.give(first)


def test_nobody_looks_whether_the_engine_is_idle_for_nothing(world: DreamingWorld) -> None:
    assert world.state.dreams.awaits_idle
    world.give(inp.DreamingStopped("p", "stopped by p"))
    assert not world.state.dreams.awaits_idle
    world.give(inp.DreamingStarted("p"))
    assert not world.state.dreams.awaits_idle
    world.dream()
    assert not world.state.dreams.awaits_idle and world.state.dreams.courses["ask"].phase == "settled"
