"""Dreams that become poorer are seen, and those of a narrow pattern are not taken for it. The limits are measured
here."""

import random
from collections.abc import Callable, Sequence

import pytest

from apollod.core.facts.dreams.scenario import (
    ALIKE_MAX,
    ANSWERS_ABOVE,
    CERTAIN_ALIKE_MAX,
    COSINE_MAX,
    LEAST,
    WINDOW,
    Dreamt,
    _spread,
    collapse,
    cosine,
    likeness,
)
from apollod.curation.dreaming.scenario_text import sketch_of
from apollod.demo.world.instructions import KINDS, Instruction, answer
from apollod.demo.world.scenarios import COLOURS, COMMAND_OF, THINGS, How, Scenario, Split, draw, pool, sample

SEEDS = range(10)
UNLOCK = [one for one in pool("how", Split.PRACTICE) if isinstance(one, How) and one.task.verb == "open"]


def dreamt(scenarios: Sequence[str], answers: Sequence[str] = (), logprob: float | None = None) -> list[Dreamt]:
    said = [sketch_of(one) for one in answers] or [None] * len(scenarios)
    return [Dreamt(sketch_of(one), other, logprob) for one, other in zip(scenarios, said, strict=True)]


def scenarios_for(instruction: Instruction, chance: random.Random) -> list[Scenario]:
    """As many as are looked at, all of which can show it."""
    if instruction.kind == "use":
        return list(chance.sample(UNLOCK, WINDOW))
    if instruction.kind == "ask":
        return sample(chance, "act", Split.PRACTICE, WINDOW)
    return [draw(chance, Split.PRACTICE) for _ in range(WINDOW)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_small_world_does_not_collapse(kind: str) -> None:
    """Narrow as it is, each pattern settled: sure of every answer, and doing with each what it was told."""
    instruction = Instruction(kind, {"use": "jolt", "end": "Over", "start": "Over"}.get(kind, ""), COMMAND_OF["open"])
    for seed in SEEDS:
        scenarios = scenarios_for(instruction, random.Random(seed))
        texts = [one.request for one in scenarios]
        answers = [answer(one, [instruction]) for one in scenarios]
        assert collapse(dreamt(texts, answers, -0.001)) == "", (seed, texts)
        sketches, said = [sketch_of(one) for one in texts], [sketch_of(one) for one in answers]
        assert _spread(sketches, likeness) < 0.8 * ALIKE_MAX
        assert _spread(sketches, cosine) < 0.9 * COSINE_MAX
        alike = _spread(said, likeness)
        assert alike < 0.8 * CERTAIN_ALIKE_MAX and alike < _spread(sketches, likeness) + 0.8 * ANSWERS_ABOVE


def repeating(few: int) -> Callable[[random.Random], list[str]]:
    def imagined(chance: random.Random) -> list[str]:
        known = [one.request for one in sample(chance, "act", Split.PRACTICE, few)]
        return [chance.choice(known) for _ in range(WINDOW)]

    return imagined


def one_sentence(chance: random.Random) -> list[str]:
    """Only two words of it change."""
    form = "Could you please help my sister to open the {} old wooden {} before tonight?"
    return [form.format(chance.choice(COLOURS), chance.choice(THINGS)) for _ in range(WINDOW)]


def about_one_thing(chance: random.Random) -> list[str]:
    """The words that count are the same in sentences that have nothing else in common."""

    def sentence() -> str:
        others = ["".join(chance.choice("aeioubdkmnprst") for _ in range(3)) for _ in range(12)]
        words = ["accountant", "quarterly", "invoices", "mistaken", *others]
        return " ".join(chance.sample(words, len(words)))

    return [sentence() for _ in range(WINDOW)]


@pytest.mark.parametrize(
    ("imagined", "what"),
    [
        (repeating(1), "too much alike: mean likeness 1.00"),
        (repeating(2), "too much alike"),
        (repeating(6), "scenarios repeat another one|too much alike"),
        (one_sentence, "too much alike"),
        (about_one_thing, "about the same: mean cosine"),
    ],
)
def test_an_imagination_that_repeats_itself_is_seen(imagined: Callable[[random.Random], list[str]], what: str) -> None:
    for seed in SEEDS:
        found = collapse(dreamt(imagined(random.Random(seed))))
        assert any(one in found for one in what.split("|")), (seed, found)


def test_what_repeats_is_seen_where_the_mean_hides_it() -> None:
    assert any("repeat another one" in collapse(dreamt(repeating(6)(random.Random(seed)))) for seed in SEEDS)


def test_it_is_about_the_last_dreams_and_needs_some() -> None:
    chance = random.Random(0)
    good = dreamt([draw(chance, Split.PRACTICE).request for _ in range(WINDOW)])
    bad = dreamt(repeating(1)(chance))
    assert collapse([*good, *bad]) and collapse([*bad, *good]) == ""
    assert collapse(bad[: LEAST - 1]) == "" and collapse(bad[:LEAST]) and collapse([]) == ""


def situations() -> list[str]:
    return [draw(random.Random(seed), Split.PRACTICE).request for seed in range(WINDOW)]


def test_answers_that_become_one_are_seen() -> None:
    varied = [f"I {verb} the {thing}." for verb, thing in zip([*COMMAND_OF] * 3, THINGS, strict=False)][:WINDOW]
    before = dreamt(situations(), varied)
    now = dreamt(situations(), ["Good day! How can I help you today?"] * WINDOW)
    assert "answers are too much alike: mean likeness 1.00" in collapse(now, before)
    assert collapse(now), "without a beginning they are compared with scenarios"
    assert collapse(now, before[: LEAST - 1])
    assert collapse(before, now) == ""
    assert collapse([*now[: LEAST - 1], *dreamt(situations()[: LEAST + 1])], before) == "", "too few answers"


def test_a_pattern_whose_answers_are_the_same_by_nature_has_not_collapsed() -> None:
    """They were so when it was first answered."""
    always = dreamt(situations(), ["I have to ask somebody first. Please wait."] * WINDOW, -0.001)
    assert collapse(always, always) == ""
    assert collapse(always, always[: LEAST - 1]), "too few to be a beginning"


def test_answers_that_are_alike_are_worse_where_none_is_in_doubt() -> None:
    half = [f"Good day! How can I help you with {thing} and {colour} things?"
            for thing, colour in zip(THINGS, COLOURS * 2, strict=True)]  # fmt: skip
    alike = _spread([sketch_of(one) for one in half], likeness)
    assert CERTAIN_ALIKE_MAX < alike < 0.6
    assert collapse(dreamt(situations(), half, -0.5)) == collapse(dreamt(situations(), half)) == ""
    assert "certain and too much alike" in collapse(dreamt(situations(), half, -0.001))
    less = [f"Good day, here I am, friend. {text}" for text in situations()]
    alike = _spread([sketch_of(one) for one in less], likeness)
    assert _spread([sketch_of(one) for one in situations()], likeness) + ANSWERS_ABOVE < alike < CERTAIN_ALIKE_MAX
    assert collapse(dreamt(situations(), less, -0.001)) == ""
    doubted = dreamt(situations(), half, -0.001)
    assert collapse([*doubted[1:], Dreamt(doubted[0].scenario, doubted[0].answer, -0.5)]) == ""
