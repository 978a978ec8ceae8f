"""From chats of SillyTavern to what is learned of them."""

from support.log_samples.sillytavern import BROKEN, CHAT, DRIFT, HEADER, said
from support.readings import evidence, examples, learned, read

from apollod.curation.formats.sillytavern import READER
from apollod.curation.formats.table import ReaderTable


def test_a_chat_becomes_examples() -> None:
    reading = read(READER, *CHAT)
    talk = ["assistant: Hello there.", "user: Who are you?", "assistant*: [hm] I am Ada."]
    more = ["system: Night falls.", "user: Good night.", "assistant: Sleep well.", "user: You, too."]
    assert examples(reading) == [
        talk,
        "another model's answers",
        [*(text.replace("*:", ":") for text in talk), *more, "assistant*: [hm] Dreams."],
    ]
    assert (reading.bad, reading.counts) == (
        [],
        {
            "dropped: a greeting, or another answer that no model wrote": 1,
            "dropped: a message that is hidden from the model": 1,
        },
    )


def test_a_greeting_is_learned_of_nobody() -> None:
    assert examples(read(READER, *CHAT[:2]), models=("*",)) == []


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    first = learned(read(READER, *CHAT).moments[0])
    assert (first.origin.session, first.origin.agent, first.origin.model) == ("i1", "sillytavern", "apollo")
    assert evidence(read(READER, *CHAT).moments[0]) == [("swiped-away", "good", "Nobody.")]


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, *DRIFT)
    assert examples(reading, models=("*",)) == [["user: q", "assistant*: a"]]
    assert reading.counts == {"dropped: a message without text": 1, "dropped: a line without a message": 1}


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4, 6, 7]
    assert all("\n" not in bad.reason for bad in reading.bad)


def test_it_is_recognised_by_its_header() -> None:
    assert ReaderTable().recognise("any.jsonl", HEADER + said("q")).name == "sillytavern"
    assert ReaderTable().recognise("any.jsonl", said("q")).name == "records"
