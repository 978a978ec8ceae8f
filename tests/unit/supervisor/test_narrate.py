"""What the daemon's log says of an event, and how loudly."""

from structlog.testing import capture_logs
from support.dreamt_journal import story

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.state import State
from apollod.supervisor.narrate import narrate


def test_a_chat_template_that_spoils_conversations_is_warned_of_once_for_each_binding() -> None:
    for problem, level in (("", "info"), ("conversations do not teach when to stop", "warning")):
        bound = inp.Bound(fingerprint="0" * 16, parameters=1, elements=1, versions={}, template=problem)
        (event,) = [e for e in decide(State(), bound, 0).events if isinstance(e, ev.TrainerBound)]
        with capture_logs() as said:
            narrate(event)
        assert [(line["log_level"], line["template"]) for line in said] == [(level, problem)]


def test_of_a_judged_example_one_line_tells_and_it_holds_no_long_text() -> None:
    judged = [
        ev.ExampleHeld("a", "bulk", "a judge decides about its source", "judge"),
        ev.VerdictRequested(attempt=1, model="m", prompt_hash="h", votes=1, example="a"),
        ev.VerdictGiven(verdict="bad", example="a", quote="q" * 999, better="b" * 999),
        ev.ExampleDeclined("a", "bulk", "judge"),
    ]
    with capture_logs() as said:
        for event in judged:
            narrate(event)
        narrate(ev.VerdictFailed(attempt=1, cause="endpoint", reason="down", gives_up=False, example="a"))
        narrate(ev.ExampleDeclined("a", "bulk", "me"))
    told = [(line["event"], line["log_level"]) for line in said if line["log_level"] != "debug"]
    assert told == [("verdict.given", "info"), ("verdict.failed", "warning"), ("example.declined", "info")]
    assert "qqq" not in str(said) and "bbb" not in str(said)


def test_of_dreams_one_line_tells_what_became_of_each_pattern() -> None:
    events = [r.event for r in story() if r.event.kind.startswith(("pattern.", "dream"))]
    events += [
        ev.PatternUnsettled("ask", "its weights were rolled back"),
        ev.DreamingStopped("anna", "stopped by anna"),
        ev.DreamingStopped("guard", "dreams of ask collapsed"),
    ]
    with capture_logs() as said:
        for event in events:
            narrate(event)
    told = [(line["event"], line.get("pattern"), line["log_level"]) for line in said if line["log_level"] != "debug"]
    assert {one for one in told if one[0] != "pattern.added"} == {
        ("pattern.settled", "ask", "info"), ("pattern.retired", "caps", "info"), ("pattern.unsettled", "ask", "info"),
        ("dreaming.stopped", None, "info"), ("dreaming.stopped", None, "warning"),
    }  # fmt: skip
    assert told[0] == ("pattern.added", "ask", "info") and len(said) == len(events) > 100
    abandoned = [line for line in said if line["event"] == "dream.abandoned"]
    assert [line["log_level"] for line in abandoned] == ["debug"]
    assert not [line for line in said if line.keys() & {"scenario", "sketch", "answer", "told"}]


def test_that_nobody_could_be_told_of_an_alarm_is_a_warning_and_an_error_once_it_is_given_up() -> None:
    with capture_logs() as said:
        narrate(ev.QualityTold(1, "alarmed", ok=False, reason="down", retry_s=1.0))
        narrate(ev.QualityTold(1, "alarmed", ok=False, reason="down", attempt=8, gives_up=True))
        narrate(ev.QualityTold(1, "settled", ok=True))
    assert {line["event"] for line in said} == {"quality.told"}
    assert [(line["about"], line["log_level"]) for line in said] == [
        ("alarmed", "warning"), ("alarmed", "error"), ("settled", "info")
    ]  # fmt: skip
