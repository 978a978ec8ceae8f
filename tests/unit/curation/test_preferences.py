"""Opinions on answers as examples: rows of data sets, ratings and discarded answers in logs."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.record_stream import batch_of_lines, lines_of
from apollod.core.inputs import Line
from apollod.curation.assembly import Assembly
from apollod.curation.conversation import Moment, Opinion, Said, Session
from apollod.curation.formats import open_webui, sillytavern
from apollod.curation.formats.jsonl_records import read_record
from apollod.curation.formats.reader import Limits
from apollod.curation.lessons.line_lessons import Pair, pair_in
from apollod.curation.moments import Rules
from apollod.curation.preferences import Preferences
from apollod.supervisor.captures import pair_of
from apollod.supervisor.config import load_config
from apollod.wire.comparisons import PairRecord, PairTerms, RatedRecord, RatedTerms, decode_learned
from apollod.wire.records import CompletionRecord, MessagesRecord

BOTH = Preferences("dpo", "kto", PairTerms(beta=0.2), RatedTerms(beta=0.2), RatedTerms(beta=0.2, weight=1.5))
LIMITS = Limits(1 << 20, 64)


def lines(rows: Iterable[dict[str, Any]], tmp_path: Path, preferences: Preferences = BOTH) -> list[Line]:
    found = [item for n, row in enumerate(rows, 1) for item in read_record(n, json.dumps(row).encode(), LIMITS)]
    return lines_of(found, Quarantine(tmp_path), Rules(preferences=preferences), Counter())


def said(line: Line) -> tuple[Any, ...]:
    """What a line teaches: ("pair", better, worse), ("good" or "bad", answer), or the answer alone."""
    match decode_learned(line.record):
        case PairRecord() as record:
            return ("pair", *map(answer, record.answers()))
        case RatedRecord() as record:
            return ("good" if record.rated.good else "bad", answer(record.answer()))
        case record:
            return (answer(record),)


def answer(record: Any) -> str:
    assert isinstance(record, CompletionRecord | MessagesRecord)
    return record.completion if isinstance(record, CompletionRecord) else record.messages[-1].content


ASKED = [{"role": "user", "content": "Why?"}]


def turn(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


PAIRS: list[dict[str, Any]] = [
    {"prompt": "Why? ", "chosen": "Yes.", "rejected": "No."},
    {"chosen": "Why? Yes.", "rejected": "Why? No."},
    {"prompt": ASKED, "chosen": [turn("Yes.")], "rejected": [turn("No.")]},
    {"chosen": [*ASKED, turn("Yes.")], "rejected": [*ASKED, turn("No.")]},
    {"prompt": "Why?", "chosen": turn("Yes."), "rejected": turn("No.")},
    {"input": {"messages": ASKED}, "preferred_output": [turn("Yes.")], "non_preferred_output": [turn("No.")]},
]


@pytest.mark.parametrize("row", PAIRS, ids=range(len(PAIRS)))
def test_a_pair_of_a_data_set_is_a_pair_if_pairs_are_learned(row: dict[str, Any], tmp_path: Path) -> None:
    (line,) = lines([row], tmp_path)
    kind, better, worse = said(line)
    assert (kind, better.strip(), worse.strip()) == ("pair", "Yes.", "No.")
    assert decode_learned(line.record).pair.terms == BOTH.pair and line.decided  # type: ignore[union-attr]
    for plain in (Preferences(), Preferences(ratings="kto")):
        (line,) = lines([row], tmp_path, plain)
        assert said(line)[0].strip() == "Yes." and not line.decided


def test_a_rating_of_a_data_set_is_a_rated_answer_if_ratings_are_learned(tmp_path: Path) -> None:
    rows = [
        {"prompt": "Why? ", "completion": "Yes.", "label": True},
        {"prompt": "Why? ", "completion": "No.", "label": False},
        {"messages": [*ASKED, turn("No!")], "kto_tag": "false", "tier": "direct"},
        {"instruction": "Why?", "output": "So.", "label": 0},
    ]  # fmt: skip
    found = lines(rows, tmp_path)
    assert [said(one) for one in found] == [("good", "Yes."), ("bad", "No."), ("bad", "No!"), ("bad", "So.")]
    assert [bool(one.responses) for one in found] == [True, False, False, False] and found[2].tier == "direct"
    assert [decode_learned(one.record).rated.terms.weight for one in found] == [1.0, 1.5, 1.5, 1.5]  # type: ignore[union-attr]
    assert [said(one) for one in lines(rows, tmp_path, Preferences(pairs="dpo"))] == [("Yes.",)]


def test_without_ratings_a_bad_row_is_counted_in_a_file_and_refused_where_a_sender_waits(tmp_path: Path) -> None:
    row = {"prompt": "Why? ", "completion": "No.", "label": False}
    counts = Counter[str]()
    assert lines_of(read_record(1, json.dumps(row).encode(), LIMITS), Quarantine(tmp_path), Rules(), counts) == []
    assert counts == {"dropped: rated bad": 1}
    (line,) = batch_of_lines([json.dumps(row).encode()], "ctl", tmp_path).lines
    assert not line.example and "it is rated bad; [preferences] ratings" in line.reason


def test_what_cannot_be_paired_is_learned_as_the_better_answer_alone(tmp_path: Path) -> None:
    """Several answers of one conversation, a worse one that is equal, or missing."""
    talk = [*ASKED, turn("Yes."), *ASKED, turn("Because.")]
    rows = [
        {"prompt": ASKED, "chosen": [turn("Yes."), *ASKED, turn("Because.")], "rejected": [turn("No.")]},
        {"prompt": "Why? ", "chosen": "Yes.", "rejected": "Yes."},
        {"input": {"messages": ASKED}, "preferred_output": [turn("Yes.")]},
        {"messages": talk, "label": True},
    ]
    assert [said(one) for one in lines(rows, tmp_path)] == [("Because.",), ("Yes.",), ("Yes.",), ("Because.",)]


def test_a_worse_answer_that_is_none_is_a_bad_line(tmp_path: Path) -> None:
    row = {"prompt": ASKED, "chosen": [turn("Yes.")], "rejected": [{"role": "user", "content": "No."}]}
    (line,) = lines([row], tmp_path)
    assert line.reason.startswith("a worse answer is of the user")


# --- logs ------------------------------------------------------------------------------------------------------------


def of_log(moments: Iterable[Any], tmp_path: Path, preferences: Preferences = BOTH) -> list[Line]:
    found = [one for one in moments if isinstance(one, Moment)]
    return [one for one in lines_of(found, Quarantine(tmp_path), rules(preferences), Counter()) if one.example]


def rules(preferences: Preferences) -> Rules:
    return Rules(models=("*",), preferences=preferences)


def assembled(*entries: Any) -> list[Any]:
    assembly = Assembly()
    closed = [one for line, entry in enumerate(entries, 1) for one in assembly.feed(line, [entry])]
    return [*closed, *assembly.settle()]


def asks(text: str, id_: str, after: str) -> Said:
    return Said({"content": text, "role": "user"}, id=id_, after=after, prompt=True)


def answers(text: str, id_: str, after: str) -> Said:
    return Said({"content": text, "role": "assistant"}, id=id_, after=after, model="m")


def test_an_answer_that_was_asked_for_again_is_the_worse_one(tmp_path: Path) -> None:
    log = [
        Session(id="s", agent="x"), asks("Hi", "a", "^"), answers("Hello.", "b", "a"), asks("Why?", "c", "b"),
        answers("No.", "d", "c"), asks("Why? ", "e", "b"), answers("Yes.", "f", "e"),
    ]  # fmt: skip
    found = [said(one) for one in of_log(assembled(*log), tmp_path)]
    assert found == [("Hello.",), ("pair", "Yes.", "No.")]
    edited = [*log[:5], asks("Why not?", "e", "b"), log[6]]
    assert [said(one) for one in of_log(assembled(*edited), tmp_path)][-1] == ("Yes.",), "another question"


def test_a_complaint_makes_a_bad_answer(tmp_path: Path) -> None:
    log = [
        Session(id="s", agent="x"), asks("Why?", "a", "^"), answers("No.", "b", "a"),
        asks("That is wrong, do it again.", "c", "b"), answers("Yes.", "d", "c"),
    ]  # fmt: skip
    found = of_log(assembled(*log), tmp_path)
    assert [said(one) for one in found] == [("bad", "No."), ("Yes.",)]
    assert found[0].evidence and not found[0].responses
    assert [said(one) for one in of_log(assembled(*log), tmp_path, Preferences())] == [("No.",), ("Yes.",)]


def webui(rating: int) -> bytes:
    messages = {
        "q": {"id": "q", "role": "user", "content": "Why?", "parentId": None},
        "a": {"id": "a", "role": "assistant", "content": "Yes.", "parentId": "q", "model": "m"},
        "b": {"id": "b", "role": "assistant", "content": "No.", "parentId": "q", "model": "m"},
    }
    chat = {"chat": {"history": {"messages": messages}}}
    given = {"id": "f", "type": "rating", "data": {"rating": rating, "model_id": "m"}, "meta": {"message_id": "a"}}
    return json.dumps({**given, "snapshot": {"chat": chat}}).encode()


@pytest.mark.parametrize(
    ("rating", "preferences", "expected"),
    [
        (1, BOTH, ("pair", "Yes.", "No.")), (1, Preferences(ratings="kto"), ("good", "Yes.")),
        (1, Preferences(), ("Yes.",)), (-1, BOTH, ("bad", "Yes.")), (-1, Preferences(pairs="dpo"), None),
    ],
)  # fmt: skip
def test_thumbs_of_a_chat(rating: int, preferences: Preferences, expected: Any, tmp_path: Path) -> None:
    closed = Assembly().feed(1, open_webui.hear(webui(rating)))
    assert [said(one) for one in of_log(closed, tmp_path, preferences)] == ([expected] if expected else [])


def test_answers_that_were_swiped_away_are_the_worse_ones(tmp_path: Path) -> None:
    asked = {"mes": "Why?", "is_user": True}
    told = {"mes": "Yes.", "is_user": False, "swipes": ["No.", "Yes.", " ", "Never."], "extra": {"model": "m"}}
    records = [Session(id="s"), *(e for one in (asked, told) for e in sillytavern.hear(json.dumps(one).encode()))]
    found = of_log(assembled(*records), tmp_path)
    assert [said(one) for one in found] == [("pair", "Yes.", "No."), ("pair", "Yes.", "Never.")]


def test_an_opinion_stays_with_an_answer_that_comes_in_parts() -> None:
    one = msgspec.structs.replace(answers("Y", "b", "a"), part_of="p", opinion=Opinion(worse=("No.",)))
    more = msgspec.structs.replace(answers("es.", "c", "b"), part_of="p")
    (moment,) = assembled(Session(id="s"), asks("Why?", "a", "^"), one, more)
    assert moment.messages[-1].opinion == Opinion(worse=("No.",))
    assert moment.messages[-1].message["content"] == "Yes."


def test_answers_that_are_compared_are_no_anchor_and_no_lesson(tmp_path: Path) -> None:
    """A bad answer as an anchor would be held as what the model should go on saying."""
    rows = [PAIRS[2], {"messages": [*ASKED, turn("No.")], "label": False}, {"messages": [*ASKED, turn("Yes.")]}]
    config = load_config(None, [f"model.path={tmp_path}"], {})
    found = [(pair_of(config, one.record), pair_in(one.record)) for one in lines(rows, tmp_path)]
    assert found == [(None, None), (None, None), (Pair("Why?", "Yes."), Pair("Why?", "Yes."))]
