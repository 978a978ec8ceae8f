"""What is dreamt next, and why it is not, in words: by the same functions that decide it."""

import msgspec
from support.dreaming_world import DREAMING, PATTERN, DreamingWorld, with_patterns

from apollod.core import inputs as inp
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.schedules import DAY_NS
from apollod.core.settings import Check

OTHER = msgspec.structs.replace(PATTERN, name="caps", instruction="Answer in capitals.")


def why(w: DreamingWorld, name: str) -> str:
    return dreams_status.reason_of(w.state.dreams.courses[name], w.state, w.now)


def coming(w: DreamingWorld, name: str) -> str:
    return dreams_status.next_of(w.state.dreams.courses[name], w.state)


def told_on_the_way(w: DreamingWorld) -> list[str]:
    """What is announced before each call, without repeats."""
    told: list[str] = []
    for _ in range(2000):
        w.settle()
        if (now := dreams_status.upcoming(w.state)) and now not in told:
            told.append(now)
        if not w.call():
            return told
    raise AssertionError("it does not end")


def test_each_stage_of_a_pattern_is_announced() -> None:
    w = DreamingWorld().up()
    told = told_on_the_way(w)
    assert told[:2] == ["ask: held-out scenario d1, imagining", "ask: held-out scenario d2, imagining"]
    assert "ask: test of d1 (baseline, bare)" in told and "ask: practice d5, answering" in told
    assert any(one.startswith("ask: variation d6, testing") for one in told)
    assert any(one.startswith("ask: test of d1 (final ") for one in told)
    assert dreams_status.upcoming(w.state) == "" == coming(w, "ask")
    assert why(w, "ask") == "it is settled; it is tested again when another pattern settles"
    assert dreams_status.reason(w.state, w.now).startswith("every pattern is settled")


def test_before_a_dream_begins_it_is_named_by_its_number() -> None:
    off = msgspec.structs.replace(DREAMING, dream=msgspec.structs.replace(DREAMING.dream, mode="off"))
    w = DreamingWorld(off).up()
    w.give(inp.Tick())
    assert dreams_status.upcoming(w.state) == "ask: held-out scenario 1 of 4"
    assert dreams_status.reason(w.state, w.now) == why(w, "ask") == 'dreams are off ([dream] mode = "off")'


def test_one_pattern_waits_for_the_others() -> None:
    w = DreamingWorld(with_patterns(PATTERN, OTHER)).up()
    w.settle()
    assert why(w, "ask") == "" == dreams_status.reason(w.state, w.now)
    assert why(w, "caps") == "a dream of ask is under way, and one is at a time"
    w.give(inp.DreamingStarted("p", pattern="ask"))
    for _ in range(4):  # until no dream is under way, but a test of a round
        w.call()
        w.settle()
    assert w.state.dreams.open is None and why(w, "caps") == "dreams of ask were asked for"
    w.give(inp.PatternUnwanted("ask", "p"))
    assert why(w, "ask") == "it is retired: retired by p" and coming(w, "ask") == ""


def test_an_untrusted_judge_and_a_call_that_failed_are_reasons() -> None:
    judged = msgspec.structs.replace(PATTERN, check=Check())
    w = DreamingWorld(with_patterns(judged)).up()
    w.give(inp.Tick())
    assert why(w, "ask").startswith("the judge is not trusted: ") and why(w, "ask") == dreams_status.reason(
        w.state, w.now
    )
    assert dreams_status.upcoming(w.state) == "ask: held-out scenario 1 of 4", "it waits, and is not over"
    w = DreamingWorld().up()
    w.settle()
    w.give(inp.DreamCallFailed("d1", "imagining", 1, "endpoint", "nobody answers"))
    assert why(w, "ask") == "the last call failed and is made again: nobody answers"


def test_the_dreams_of_a_day_are_counted() -> None:
    w = DreamingWorld().up()
    w.dream()
    own = w.state.dreams
    assert own.of_day == own.number > 10 and own.day == w.now // DAY_NS
    w.now += DAY_NS
    w.give(inp.PatternWanted(OTHER, "p"))
    w.settle()
    assert own.day == w.now // DAY_NS and own.of_day == 1
