"""What `apollod ctl schedule show` says, and how the daemon learns its hours."""

import pytest

from apollod.adapters.system import clock
from apollod.cli.control.training import schedule_lines
from apollod.errors import ConfigError
from apollod.supervisor import app
from apollod.supervisor.config import load_config

NIGHTLY = {
    "nightly": "02:00-05:00", "zone": "UTC", "open": False, "opens_at": 93600.0, "closes_at": 104400.0, "steps": 3,
}  # fmt: skip
WHY = "what came from files and logs is learned at night (02:00-05:00 UTC)"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"schedule": {"nightly": ""}, "pending": 0},
            ["any: examples are learned as they come", "nothing waits", "nothing is unsaved"],
        ),
        (
            {"schedule": NIGHTLY, "pending": 7, "waits": {"step": WHY}},
            ["next on 1970-01-02", "does not wait", f"7 examples wait: {WHY}"],
        ),
        (
            {"schedule": NIGHTLY | {"open": True}, "pending": 7, "checkpoint_due_in_s": 0.0},
            ["now, until 1970-01-02", "3 steps so far", "begins at once", "checkpoint  now"],
        ),
        ({"schedule": NIGHTLY | {"open": True, "late": True}, "pending": 7}, ["missed, and caught up now, until 1970"]),
        ({"schedule": {}, "pending": 1, "checkpoint_due_in_s": 30.0, "waits": {"checkpoint": "no"}}, ["in 30 s (no)"]),
    ],
)
def test_what_comes_next_and_why(answer: dict, words: list[str]) -> None:
    waits = {"step": "", "checkpoint": ""} | answer.pop("waits", {})
    said = "\n".join(schedule_lines({"checkpoint_due_in_s": None, "waits": waits, "dreams": {}, **answer}))
    assert [word for word in words if word not in said] == []


DREAMS = {"active": 1, "settled": 0, "retired": 0, "mode": "idle", "next": "ask: practice 3", "reason": "users"}


@pytest.mark.parametrize(
    ("dreams", "lines"),
    [
        ({}, ["dreams      none: there is no pattern; `apollod ctl pattern add` or [[dream.pattern]] adds one"]),
        (DREAMS, ["dreams      while nobody else uses the engine", "next dream  ask: practice 3", "waits for   users"]),
        (
            DREAMS | {"mode": "off", "next": "", "reason": "every pattern is settled"},
            ["dreams      on request", "next dream  nothing is left to do"],
        ),
        (DREAMS | {"reason": ""}, ["dreams      while nobody else uses the engine", "next dream  ask: practice 3"]),
    ],
)
def test_what_is_dreamt_next_and_why_not(dreams: dict, lines: list[str]) -> None:
    answer = {"schedule": {}, "pending": 0, "waits": {"step": "", "checkpoint": ""}, "checkpoint_due_in_s": None}
    assert schedule_lines({**answer, "dreams": dreams})[3:] == lines


def test_dreams_at_night_are_said_and_need_hours() -> None:
    answer = {"pending": 0, "waits": {"step": "", "checkpoint": ""}, "checkpoint_due_in_s": None, "dreams": DREAMS}
    said = schedule_lines({**answer, "schedule": NIGHTLY | {"dream": "night"}})
    assert said[3] == "dreams      while nobody else uses the engine at night"
    overrides = ["model.path=/m", "schedule.dream=night"]
    with pytest.raises(ConfigError, match='dream = "night" needs nightly'):
        load_config(None, overrides, {})
    assert load_config(None, [*overrides, "schedule.nightly=02:00-05:00"], {}).schedule.dream == "night"


def test_the_hours_of_the_configuration_are_told_and_none_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ns", lambda: 86_400 * 10**9)
    overrides = ["model.path=/m", "schedule.nightly=02:00-05:00", "schedule.zone=UTC"]
    known = app._night(load_config(None, overrides, {}).schedule)
    assert known is not None
    assert (known.opens_ns, known.closes_ns) == (26 * 3600 * 10**9, 29 * 3600 * 10**9)
    assert (known.hours, known.zone) == ("02:00-05:00", "UTC")
    assert app._night(load_config(None, overrides[:1], {}).schedule) is None


@pytest.mark.parametrize("wrong", ["schedule.nightly=2", "schedule.zone=Nowhere", "schedule.accumulate=-1"])
def test_what_is_no_schedule(wrong: str) -> None:
    with pytest.raises(ConfigError):
        load_config(None, ["model.path=/m", wrong], {})
