"""The pure parts of the soak: what counts as a leak, which acts come when, what an answer has to be, the report."""

import json
import os
import random
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from apollod.core.settings import PatternSettings
from benchmarks.shipped import configured
from benchmarks.soak import checks, leaks, material, schedule, summary, users, watch
from benchmarks.soak.records import Records

MIB = 1 << 20


def life(seconds: float, figure: Any, start: float = 0.0) -> list[leaks.Sample]:
    """A sample each ten seconds; `figure` of the seconds since the start."""
    return [(start + t, float(figure(t))) for t in range(0, int(seconds), 10)]


class TestLeaks:
    def test_what_breathes_is_none(self) -> None:
        chance = random.Random(1)
        steady = [life(1800, lambda _: 500 * MIB + chance.gauss(0, 5 * MIB), n * 2000.0) for n in range(4)]
        found = leaks.trend(steady)
        assert found.told and not leaks.is_leak("anonymous", found)

    def test_what_rises_and_stays_is_none(self) -> None:
        found = leaks.trend([life(6000, lambda t: min(t, 1000) * MIB)])
        assert found.told and not leaks.is_leak("anonymous", found)

    @pytest.mark.parametrize("per_hour, leaking", [(10, False), (100, True)])
    def test_a_slope_counts_above_its_bound(self, per_hour: float, leaking: bool) -> None:
        chance = random.Random(2)
        lives = [life(2400, lambda t: (200 + per_hour * t / 3600) * MIB + chance.gauss(0, MIB)) for _ in range(3)]
        found = leaks.trend(lives)
        assert leaks.is_leak("anonymous", found) == leaking
        assert found.slope / MIB == pytest.approx(per_hour, abs=20)

    def test_files_that_are_never_closed_are_one(self) -> None:
        assert leaks.is_leak("descriptors", leaks.trend([life(6000, lambda t: 40 + t // 60)]))

    def test_lives_that_begin_higher_are_no_slope(self) -> None:
        """Each life by itself: that a later one holds more says nothing."""
        found = leaks.trend([life(1200, lambda _, n=n: 100 * n * MIB, n * 1300.0) for n in range(5)])  # type: ignore[misc]
        assert found.told and found.slope == 0 and found.sure == 0

    def test_little_is_not_judged(self) -> None:
        found = leaks.trend([life(900, lambda t: t * MIB) for _ in range(3)])
        assert not found.told and not leaks.is_leak("anonymous", found)


class TestSchedule:
    def test_it_is_a_function_of_seed_and_part(self) -> None:
        acts = schedule.schedule(1, 0, 3600)
        assert acts == schedule.schedule(1, 0, 3600) == sorted(acts)
        assert acts != schedule.schedule(2, 0, 3600) and acts != schedule.schedule(1, 1, 3600)
        assert all(0 < act.at_s < 3600 for act in acts)

    def test_an_hour_has_all_kinds_as_often_as_they_say(self) -> None:
        acts = [act for part in range(100) for act in schedule.schedule(1, part, 3600)]
        for kind, period in schedule.PERIODS.items():
            count = sum(act.kind == kind for act in acts)
            lasts = schedule.ROUGH_S if kind in schedule.ROUGH else 3600
            assert count / 100 == pytest.approx(lasts / period, rel=0.1, abs=0.5), kind

    def test_the_end_of_each_hour_kills_nothing(self) -> None:
        rough = [act.at_s % 3600 for act in schedule.schedule(1, 0, 14400) if act.kind in schedule.ROUGH]
        assert len(rough) > 30 and max(rough) < schedule.ROUGH_S

    def test_a_longer_part_begins_as_a_shorter_one(self) -> None:
        short = schedule.schedule(1, 0, 600)
        assert short == schedule.schedule(1, 0, 3600)[: len(short)]


class TestMaterial:
    def test_settings_go_in_place_of_those_that_stand_there(self) -> None:
        text = "[a]\nx = 1  # old\nxy = 2\n\n[b]\nx = 3\n"
        got = configured(configured(text, {"a": {"x": 5}, "c": {"y": ["z"]}}), {"a": {"x": 6}})
        assert tomllib.loads(got) == {"a": {"x": 6, "xy": 2}, "b": {"x": 3}, "c": {"y": ["z"]}}

    def test_patterns_have_names_of_their_own(self) -> None:
        patterns = [PatternSettings(**material.pattern(number)) for number in range(60)]
        assert len({one.name for one in patterns}) == 60

    def test_lines_are_conversations(self) -> None:
        chance = random.Random(3)
        for _ in range(50):
            assert [turn["role"] for turn in json.loads(material.line(chance))["messages"]][-2:] == [
                "user",
                "assistant",
            ]
        assert all("messages" in json.loads(line) for line in material.poison(chance))


WHOLE = {
    "id": "r", "choices": [{"message": {"content": "I open."}, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 3},
}  # fmt: skip


class TestAnswers:
    def test_a_whole_one(self) -> None:
        assert users.whole_of(json.dumps(WHOLE).encode()) == ("r", "I open.")

    @pytest.mark.parametrize("change", [
        {"id": 1}, {"choices": []}, {"usage": {"completion_tokens": 0}}, {"usage": {"completion_tokens": 99}},
        {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "I"}, "finish_reason": "abort"}]},
    ])  # fmt: skip
    def test_what_is_none(self, change: dict[str, Any]) -> None:
        with pytest.raises(users.Malformed):
            users.whole_of(json.dumps(WHOLE | change).encode())

    def test_a_streamed_one(self) -> None:
        assert users.streamed_of(iter([*events("I", " open.", end="stop"), b"data: [DONE]\n"])) == "I open."

    def test_a_stream_that_an_engine_ends_as_it_goes_down(self) -> None:
        with pytest.raises(ConnectionError):
            users.streamed_of(iter([*events("I"), b'data: {"error": {"message": "EngineCore", "code": 500}}\n']))

    def test_a_stream_that_breaks_off(self) -> None:
        with pytest.raises(users.http.client.IncompleteRead):
            users.streamed_of(iter(events("I")))

    @pytest.mark.parametrize("lines", [
        [b"data: [DONE]\n"], [b"{}\n"], [b"data: {\n"], [b'data: {"choices": []}\n'],
    ])  # fmt: skip
    def test_what_is_no_stream(self, lines: list[bytes]) -> None:
        with pytest.raises(users.Malformed):
            users.streamed_of(iter(lines))

    def test_statuses(self) -> None:
        users.check_status(200)
        for status in (500, 503):
            with pytest.raises(ConnectionError):
                users.check_status(status)
        with pytest.raises(users.Malformed):
            users.check_status(404)


def events(*words: str, end: str = "") -> list[bytes]:
    choices = [{"delta": {"content": word}, "finish_reason": None} for word in words]
    choices += [{"delta": {}, "finish_reason": end}] if end else []
    return [line for one in choices for line in (f"data: {json.dumps({'choices': [one]})}\n".encode(), b"\n")]


class TestReport:
    def test_answers_after_a_kill_are_owed_again_after_a_while(self) -> None:
        acts = [{"at": 100.0, "until": 101.0, "kind": "kill", "told": "engine"}]
        said = [answer(50), answer(99.5, "down", 1.0), answer(150, "down"), answer(200)]
        figures, missed = summary.serving(said, acts)
        assert missed == [] and figures["outages"] == 1 and figures["down_max_s"] == pytest.approx(101.0)

    @pytest.mark.parametrize("kind, told, until, said, amiss", [
        ("kill", "trainer", 101.0, [("down", 102.0)], "outside"),
        ("teach", "", 101.0, [("late", 102.0)], "outside"),
        ("kill", "engine", 101.0, [("malformed", 102.0)], "outside"),
        ("kill", "engine", 101.0, [("down", 50.0)], "outside"),
        ("kill", "engine", 101.0, [("down", 102.0), ("down", 500.0)], "outside"),
        ("kill", "engine", 900.0, [("down", 102.0)], "without an answer"),
    ])  # fmt: skip
    def test_what_is_missed(self, kind: str, told: str, until: float, said: list[Any], amiss: str) -> None:
        acts = [{"at": 100.0, "until": until, "kind": kind, "told": told}]
        _, missed = summary.serving([*(answer(at, end) for end, at in said), answer(1000)], acts)
        assert any(amiss in one for one in missed), missed

    def test_an_answer_without_its_version_is_missed_unless_the_engine_has_just_begun(self) -> None:
        acts = [{"at": 100.0, "until": 101.0, "kind": "kill", "told": "engine"}]
        said = [answer(150) | {"labelled": False}, answer(160)]
        assert summary.serving(said, acts)[1] == [] and summary.serving(said, [])[1]

    def test_between_two_parts_nobody_is_owed_an_answer(self) -> None:
        acts = [{"at": 99.0, "until": 100.0, "kind": "kill", "told": "engine"}]
        figures, _ = summary.serving([answer(100, "down"), answer(9999) | {"part": 1}], acts)
        assert figures["down_s"] == 0

    def test_slow_answers_are_missed(self) -> None:
        assert summary.serving([answer(at, seconds=40.0) for at in range(9)], [])[1]

    def test_no_steps_are_missed(self) -> None:
        status = [{"at": float(t), "part": 0, "state": "serving", "steps": 3, "events": 9} for t in range(0, 1200, 10)]
        figures, missed = summary.learning(status, [{"part": 0}])
        assert figures["longest_without_step_s"] == 1190 and missed
        assert not summary.learning([one | {"steps": one["at"]} for one in status], [{"part": 0}])[1]

    def test_a_planted_leak_is_missed(self) -> None:
        found = summary.summary(records_of(lambda t: 40 + t // 30))
        assert [one.split(" rises")[0] for one in found["missed"]] == ["trainer: descriptors"]
        assert summary.summary(records_of(lambda t: 40))["missed"] == []
        assert summary.rows(found)[0][0] == "trainer"


def answer(at: float, end: str = "good", seconds: float = 0.5) -> dict[str, Any]:
    return {"part": 0, "at": float(at), "end": end, "seconds": seconds, "way": "whole"}


def records_of(descriptors: Any) -> dict[str, list[dict[str, Any]]]:
    """Of a part of a hundred minutes with one trainer."""
    of = {
        "pid": 7,
        "began": 1,
        "role": "trainer",
        "rss": MIB,
        "pss": MIB,
        "anonymous": MIB,
        "threads": 3,
        "memory_files": 0,
    }
    samples = [
        {"at": float(t), "processes": [of | {"descriptors": descriptors(t)}], "state": {"files": 3}}
        for t in range(0, 6000, 10)
    ]
    parts = [{"part": 0, "seconds": 1200.0, "kinds": {}, "replay": {}}]
    return {"parts": parts, "samples": samples, "answers": [], "acts": [], "status": [], "given": [], "missed": []}


def test_records_are_read_by_a_later_part(tmp_path: Path) -> None:
    kept = Records(tmp_path / "soak")
    kept.keep("acts", {"at": 1}, {"at": 2})
    with (tmp_path / "soak" / "acts.jsonl").open("a") as file:
        file.write('{"at": 3')  # killed while it wrote
    assert Records(tmp_path / "soak").all("acts") == [{"at": 1}, {"at": 2}]
    Records(tmp_path / "soak").keep("acts", {"at": 4})
    assert Records(tmp_path / "soak").all("acts")[-1] == {"at": 4}


@pytest.mark.parametrize("step, begin", [(90, 0), (150, 80), (1000, 140)])
def test_where_a_replay_begins(step: int, begin: int) -> None:
    found = [
        {"step": 20, "state": "not reachable"}, {"step": 80, "state": "reachable"}, {"step": None, "state": "broken"},
        {"step": 140, "state": "in model directory"},
    ]  # fmt: skip
    assert checks.start(found, step, 100) == begin


def test_a_process_is_seen_with_what_it_holds(tmp_path: Path) -> None:
    before = watch.process(os.getpid())
    with (tmp_path / "file").open("w"):
        held = watch.process(os.getpid())
    assert before is not None and held is not None
    assert held["descriptors"] == before["descriptors"] + 1 and held["rss"] >= held["anonymous"] > MIB
    assert os.getpid() in watch.family(os.getppid())
    memory = os.memfd_create("soak")
    os.write(memory, bytes(MIB))
    assert (watch.process(os.getpid()) or {})["memory_files"] - held["memory_files"] == MIB
    os.close(memory)


LEAKING = """
import time
kept = []
while True:
    kept.append((open("/dev/null"), bytearray(1 << 20)) if {leaks} else None)
    time.sleep(0.02)
"""


@pytest.mark.parametrize("leaking", [True, False])
def test_a_process_that_leaks_is_told_from_one_that_does_not(
    leaking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its looks stand for a hundred minutes."""
    monkeypatch.setattr(watch, "PERIOD_S", 0.05)
    monkeypatch.setattr(watch, "ROLES", (("kept = []", "trainer"),))
    looks = list[dict[str, Any]]()
    child = subprocess.Popen([sys.executable, "-c", LEAKING.format(leaks=leaking)])
    try:
        with watch.Watch(lambda: child.pid, tmp_path, looks.append):
            while len(looks) < 40:
                time.sleep(0.1)
    finally:
        child.kill()
        child.wait()
    first, last = looks[0]["at"], looks[-1]["at"]
    stretched = [look | {"at": (look["at"] - first) * 6000 / (last - first)} for look in looks]
    found = summary.summary(records_of(lambda _: 40) | {"samples": stretched})
    assert found["memory"]["trainer"]["trends"]["descriptors"]["told"]
    assert [one.split(" rises")[0] for one in found["missed"]] == (
        ["trainer: anonymous", "trainer: descriptors"] if leaking else []
    )


@pytest.mark.parametrize("comm, command, role", [
    ("VLLM::EngineCor", "VLLM::EngineCore", "engine core"), ("python", "python\0-m\0apollod.engine\0--port", "engine"),
    ("python", "python\0-m\0apollod.trainer\0", "trainer"), ("python", "python\0-m\0apollod\0run", "supervisor"),
    ("bash", "bash", "other"),
])  # fmt: skip
def test_roles(comm: str, command: str, role: str) -> None:
    assert watch.role_of(comm, command) == role
