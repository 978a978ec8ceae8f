"""From what people rated in Open WebUI to what is learned of it."""

import json

from support.log_samples.open_webui import BROKEN, CHATS, DRIFT, EXPORT
from support.readings import evidence, examples, learned, read

from apollod.curation.formats.open_webui import READER
from apollod.curation.formats.table import ReaderTable

FIRST = ["user: Who are you?", "assistant*: I am Ada."]
SECOND = ["user: Who are you?", "assistant: I am Ada.", "user: What do you do?", "assistant*: I count."]


def test_what_is_rated_good_is_learned() -> None:
    reading = read(READER, EXPORT)
    assert examples(reading) == [FIRST, SECOND, "rated bad"]
    assert (reading.bad, reading.counts) == (
        [],
        {
            "dropped: rated neither good nor bad": 1,
            "dropped: a chat with calls of tools, which the export has as HTML": 1,
            "dropped: a rating whose answer is not in the export": 2,
        },
    )


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    _, second, bad = read(READER, EXPORT).moments
    origin = learned(second).origin
    assert (origin.session, origin.agent, origin.model, origin.records) == ("c1", "open-webui", "apollo", ("f-m5",))
    assert evidence(second) == [("rating", "good", "+1 helpful")]
    assert evidence(bad) == [("rating", "bad", "-1 helpful")]


def test_annotations_of_older_exports_are_ratings() -> None:
    reading = read(READER, json.dumps(CHATS).encode())
    assert examples(reading) == [FIRST, "rated bad"]
    assert evidence(reading.moments[0]) == [("rating", "good", "+1 accurate yes")]
    assert reading.counts == {"dropped: rated neither good nor bad": 1, "dropped: a chat without a rating": 1}


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, json.dumps(DRIFT, indent=1).encode())
    assert examples(reading)[0] == FIRST
    assert len(reading.moments) == 2, "parents that go round are followed to a limit"
    assert reading.counts == {"dropped: rated neither good nor bad": 1, "unknown: hologram": 1}


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, json.dumps(BROKEN).encode())
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4]
    assert all("\n" not in bad.reason for bad in reading.bad)


def test_it_is_recognised_by_its_first_rating() -> None:
    table = ReaderTable()
    assert table.recognise("feedback-history-export.json", EXPORT).name == "open-webui"
    assert table.recognise("chats.json", json.dumps(CHATS).encode()).name == "open-webui"
    assert table.recognise("a.json", b'[{"text": "a"}]').name == "json-rows"
