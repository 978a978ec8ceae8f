"""Each answer of a log is an example of its own, with its prompt and the newest context, known by what was said."""

import json
from typing import Any

import pytest
from support.readings import every, shown

from apollod.core.facts.intake.inputs import part_key
from apollod.curation.conversation import Moment, Said, Session
from apollod.curation.formats.turns import form, tool_call
from apollod.curation.moments import PARTS_MAX, Rules, answer_key, learn
from apollod.curation.responses import taught
from apollod.curation.stripping import Stripping
from apollod.wire.context_window import cut, shortened, size_of, window
from apollod.wire.records import decode_record


def asks(text: str) -> Said:
    return Said(form("user", text), prompt=True)


def calls(n: int, text: str = "", size: int = 1) -> Said:
    return Said(form("assistant", text, tool_calls=[tool_call(f"c{n}", "Read", {"of": "p" * size})]), model="apollo")


def result(n: int, text: str) -> Said:
    return Said(form("tool", text, tool_call_id=f"c{n}"))


def says(text: str) -> Said:
    return Said(form("assistant", text), model="apollo")


def moment(*said: Said, fresh: int = 0, **session: Any) -> Moment:
    return Moment(1, 1, Session(**session), said, fresh)


TURN = moment(
    asks("Fix the bug"), *(one for n in range(8) for one in (calls(n), result(n, f"{n} " + "r" * 200))), says("Done.")
)


def test_prompt_and_newest_context_stay_and_the_middle_is_left_out_with_calls_and_results_together() -> None:
    *_, last = every(TURN, context_tokens=150)
    lines = shown(last.record.canonical)
    assert lines[0] == "user: Fix the bug" and lines[-1] == "assistant*: Done."
    assert [one[:6] for one in lines[1:-1]] == ["assist", "tool: "] * 3 and lines[-2].startswith("tool: 7 ")
    assert "characters left out" in lines[2] and "5 r" in lines[2], "in which the room ended"
    assert (last.origin.left_out, last.origin.shortened) == (10, 1)


def test_an_answer_is_known_by_the_same_key_whatever_of_its_context_is_kept() -> None:
    short, whole = every(TURN, context_tokens=150), every(TURN)
    assert [one.taught.responses[0].key for one in short] == [one.taught.responses[0].key for one in whole]
    assert [one.taught.responses[0].key for one in whole] == [taught(one.record).responses[0].key for one in whole]
    places = [one.place for one in whole]
    assert [answer_key(TURN, n, Rules()) for n in places] == [one.taught.responses[0].key for one in whole]
    assert len({one.record.id for one in (*short, *whole)}) > len(whole), "else this shows nothing"


def test_the_end_of_a_response_is_that_of_its_turn() -> None:
    for one in every(TURN):
        canonical, (response,) = one.record.canonical, one.taught.responses
        assert response.end == taught(one.record).responses[0].end and canonical[response.end :] == b"}]}"


def test_a_result_or_prompt_that_is_too_long_is_shortened_in_its_middle_and_marked() -> None:
    talk = moment(asks("begin" + "q" * 5000 + "end"), calls(0), result(0, "first" + "r" * 9000 + "last"), says("Done."))
    _, last = every(talk, context_tokens=500)
    prompt, _, output, _ = decode_record(last.record.canonical).messages  # type: ignore[union-attr]
    for text, ends in ((prompt.content, ("begin", "end")), (output.content, ("first", "last"))):
        assert text.startswith(ends[0]) and text.endswith(ends[1]) and "characters left out ...]" in text
    assert len(last.record.canonical) < 2500 and last.origin.shortened == 2


def test_what_was_stripped_is_not_in_the_room() -> None:
    memory = "<memory>" + "m" * 50_000 + "</memory>"
    (one,) = every(moment(asks("earlier"), says("yes"), asks(f"{memory}now"), says("Done."), fresh=3))
    assert shown(one.record.canonical) == ["user: earlier", "assistant: yes", "user: now", "assistant*: Done."]
    assert [(taken.place, taken.at) for taken in one.removed] == [(2, 0)]


def test_the_instruction_that_is_stripped_counts_however_long_ago_it_was_said() -> None:
    told = moment(asks("Be terse. Go"), *(says("x" * 300) for _ in range(20)), asks("and?"), says("Done."))
    rules = Rules(stripping=Stripping(instruction="Be terse."), context_tokens=400)
    found = learn(told, rules)
    assert found.learned[-1].origin.left_out > 10 and len(found.learned) == 21 and not found.unlearned
    bare = moment(asks("Go"), says("x"), asks("Be terse. Go on"), says("Done."))
    found = learn(bare, rules)
    assert len(found.learned) == 1 and found.unlearned == {"said without the instruction": 1}


def test_a_long_answer_is_learned_in_parts_that_are_known_each() -> None:
    text = " ".join(f"word{n}" for n in range(3000))
    parts = every(moment(asks("Write"), says(text)))
    assert len(parts) > 3 and len({one.record.id for one in parts}) == len(parts)
    for n, one in enumerate(parts):
        record = decode_record(one.record.canonical)
        assert record.messages[-1].part == (n, len(parts))  # type: ignore[union-attr]
        assert record.messages[-1].content == text  # type: ignore[union-attr]
    keys = [one.taught.responses[0] for one in parts]
    assert len({one.key for one in keys}) == 1 and keys[0].keys == (keys[0].key,)
    assert [one.keys[0] for one in keys[1:]] == [part_key(keys[0].key, n) for n in range(1, len(parts))]
    assert "".join(one.taught.text for one in parts) == text


def test_an_answer_in_other_letters_has_more_parts_and_one_without_end_is_named() -> None:
    latin, chinese = (len(every(moment(asks("Write"), says(letter * 3000)))) for letter in ("a", "山"))
    assert (latin, chinese) == (1, 5)
    found = learn(moment(asks("Write"), says("a" * 100_000)), Rules())
    assert not found.learned and f"{PARTS_MAX} parts" in next(iter(found.unlearned))


def test_tools_that_would_take_the_context_are_those_that_are_called() -> None:
    tools = tuple({"type": "function", "function": {"name": name, "description": "d" * 3000}} for name in ("Read", "X"))
    call, done = every(moment(asks("q"), calls(0), result(0, "r"), says("Done."), tools=tools))
    assert len(json.loads(call.record.canonical)["tools"]) == 1
    few, _ = every(moment(asks("q"), calls(0), result(0, "r"), says("Done."), tools=tools[1:]))
    assert [one["function"]["name"] for one in json.loads(few.record.canonical)["tools"]] == ["X"]
    assert [one["function"]["name"] for one in json.loads(done.record.canonical)["tools"]] == ["Read"]


# --- the window itself ----------------------------------------------------------------------------------------------


def test_a_window_keeps_head_prompt_and_newest_then_whole_turns_before() -> None:
    roles = ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "tool", "tool"]
    sizes = [10] * len(roles)
    assert window(roles, 3, sizes.__getitem__, 1000).kept == tuple(range(9))
    assert window(roles, 3, sizes.__getitem__, 70).kept == (0, 3, 4, 5, 6, 7, 8)
    assert window(roles, 3, sizes.__getitem__, 60).kept == (0, 3, 4, 5, 6, 7, 8), "what the room ends in is shortened"
    assert window(roles, 3, sizes.__getitem__, 60).tight == (((4, 5), 10),)
    assert window(roles, 3, sizes.__getitem__, 54).kept == (0, 3, 6, 7, 8), "or left out, where hardly any is left"


def test_a_head_or_prompt_that_takes_everything_is_held_short() -> None:
    found = window(["system", "user", "assistant", "tool"], 1, [1000, 1000, 5, 1000].__getitem__, 400)
    assert found.kept == (0, 1, 2, 3) and found.tight == (((0,), 100), ((1,), 200), ((2, 3), 100))


def test_texts_are_cut_alike_and_cut_again_the_mark_says_all() -> None:
    one, other = form("tool", "a" * 1000), form("tool", "b" * 50)
    first, second = shortened([one, other], 400)
    assert second == other and size_of(first) <= 350
    text = cut(cut("x" * 1000, 500), 300)
    left = int(text.partition("[... ")[2].partition(" ")[0])
    assert left + text.count("x") == 1000 and len(text) <= 300 and text.count("[...") == 1


@pytest.mark.parametrize("odd", [{"function": "ls"}, {"function": {"name": ["ls"]}}, {"name": {"ls": 1}}])
def test_tools_of_a_shape_that_nobody_knows_are_left_out_where_there_are_too_many(odd: dict[str, object]) -> None:
    messages = ({"content": "q", "role": "user"}, {"content": "a", "role": "assistant"})
    told = tuple(Said(one, prompt=one["role"] == "user", model="apollo") for one in messages)
    session = Session(id="s", tools=({**odd, "description": "x" * 9000},))
    (learned,) = learn(Moment(1, 1, session, told, 0), Rules()).learned
    assert b"tools" not in learned.record.canonical
