"""The choice of surroundings: every kind comes, with everything that comes beside it; nothing that is practised in is
tested in; and what a person's own conversations give holds no instruction, is bounded, and is split for good."""

from collections.abc import Sequence
from itertools import product
from math import lcm

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from support.effort import draws

from apollod.core.facts.dreams.scenario import likeness
from apollod.core.surroundings import SURROUNDING_KINDS, SurroundingKind, drawn, in_place_of
from apollod.curation.dreaming.scenario_text import sketch_of, words_of
from apollod.curation.surrounding_texts import Own, Recorded, lines, own_surroundings, shipped
from apollod.wire.records import record_of

KINDS = st.permutations(SURROUNDING_KINDS).flatmap(lambda all_: st.integers(1, 4).map(lambda count: all_[:count]))
BESIDE = st.integers(1, 6)
INSTRUCTION = "Ask before you delete anything."
WORD = st.sampled_from("ferry lamp tide 7 2031-09-04 harbour box I you answer politely".split())
SAID = st.lists(WORD, min_size=1, max_size=12).map(" ".join)
SYSTEM = st.one_of(st.none(), SAID, SAID.map(lambda said: f"{said}\n\n{INSTRUCTION}"))
TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), SAID), max_size=5)


@draws(100, 2000)
@given(KINDS, BESIDE, st.integers(0, 1000))
def test_every_kind_comes_with_everything_that_comes_beside_it(
    kinds: Sequence[SurroundingKind], beside: int, start: int
) -> None:
    rounds = lcm(len(kinds), beside) * len(kinds)
    seen = {(drawn(kinds, number, beside).kind, number % beside) for number in range(start, start + 2 * rounds)}
    assert seen == set(product(kinds, range(beside)))
    assert {drawn(kinds, number, beside).kind for number in range(start, start + 2 * len(kinds))} == set(kinds)
    assert {drawn(kinds, number, beside).turn for number in range(5 * len(kinds))} == set(range(5)), "texts in turn"


@draws(100, 2000)
@given(KINDS, st.sets(st.sampled_from(SURROUNDING_KINDS)), st.integers(0, 1000))
def test_what_cannot_be_had_is_replaced_by_all_others_in_turn(
    kinds: Sequence[SurroundingKind], missing: set[SurroundingKind], start: int
) -> None:
    left = [kind for kind in kinds if kind not in missing] or ["none"]
    wanted = [drawn(kinds, number) for number in range(start, start + len(kinds) * len(kinds))]
    found = [in_place_of(one, kinds, missing) for one in wanted]
    assert {one.kind for one in found} == set(left)
    assert all(one == other for one, other in zip(found, wanted, strict=True) if other.kind not in missing)


def test_what_ships_for_tests_is_worded_far_from_what_ships_for_practice() -> None:
    """No row of four words in common, in system messages or turns, and not alike by what compares scenarios."""
    said = {use: [_text(one.messages) for one in lines() if one.use == use] for use in ("practice", "tests")}
    assert min(len(texts) for texts in said.values()) > 10
    for one, other in product(said["practice"], said["tests"]):
        assert not _rows(one) & _rows(other), (one, other)
        assert likeness(sketch_of(one), sketch_of(other)) < 0.5, (one, other)


def test_every_kind_that_ships_is_there_for_each_use_and_one_agent_is_as_long_as_agents_are() -> None:
    for use in ("practice", "tests"):
        assert len({one.system for one in shipped("neutral", use)}) >= 10  # type: ignore[arg-type]
        assert all(len(one.messages) == 1 and not one.tools for one in shipped("neutral", use))  # type: ignore[arg-type]
        agents = shipped("agent", use)  # type: ignore[arg-type]
        long = [one for one in agents if len(msgspec.json.encode(one)) > 7_000]
        assert long and all(one.tools and len(one.messages) > 4 and one.system for one in long)
        assert [one for one in agents if len(msgspec.json.encode(one)) < 1_000], "one for a model with little room"


@draws(40, 2000)
@example([("7", []), ("7", [("user", "ferry ferry ferry ferry")])], 40)
@given(st.lists(st.tuples(SYSTEM, TURNS), max_size=8), st.integers(40, 400))
def test_own_surroundings_hold_no_instruction_are_bounded_and_split_by_their_system_message(
    said: list[tuple[str | None, list[tuple[str, str]]]], most: int
) -> None:
    recorded = [Recorded(_record(system, turns)) for system, turns in said]
    found = own_surroundings(recorded, INSTRUCTION, most)
    again = own_surroundings(reversed(recorded), INSTRUCTION, most)
    assert sorted(found, key=_id) == sorted(again, key=_id), "by what they say, not by when they came"
    assert len({one.surrounding.id for one in found}) == len(found)
    uses: dict[str, set[str]] = {}
    for use, one in found:
        text = " ".join(message["content"] for message in one.messages)
        assert INSTRUCTION not in text and len(text) <= most + len(one.messages)
        assert one.messages and [m["role"] for m in one.messages if m["role"] != "system"][:1] in ([], ["user"])
        if one.system is not None:
            uses.setdefault(one.system, set()).add(use)
    assert all(len(each) == 1 for each in uses.values()), "a system message that is practised and tested in"


def _id(one: Own) -> str:
    return one.surrounding.id


def _record(system: str | None, turns: list[tuple[str, str]]) -> bytes:
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": role, "content": content} for role, content in turns]
    asked = [{"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Now it is noon."}]
    return record_of({"messages": [*messages, *asked]}).canonical


def _text(messages: Sequence[dict[str, str]]) -> str:
    return "\n".join(str(one["content"]) for one in messages)


def _rows(text: str) -> set[tuple[str, ...]]:
    words = words_of(text)
    return set(zip(words, words[1:], words[2:], words[3:], strict=False))
