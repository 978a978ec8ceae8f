"""`apollod ctl quality`: what a person sees of measurements and alarms, and asks for; without children."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.childless import reached
from support.dreamt_journal import story, write_story
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.journals import write
from support.world import World

from apollod.cli.control.quality import quality_verb
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.quality.events import NO_JUDGE
from apollod.supervisor.config import Config

Capture = pytest.CaptureFixture[str]


def guarded_life(resume: str = "auto") -> GuardedWorld:
    """Nine examples of which one does harm: an alarm, and the way back."""
    world = GuardedWorld(guarded(resume=resume))
    world.poison = {"e": ITEMS}
    world.up()
    world.lines(*"abcdefghi")
    world.settle()
    return world


@pytest.fixture(scope="module")
def life() -> GuardedWorld:
    return guarded_life()


@pytest.fixture(scope="module")
def journal(life: GuardedWorld, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_story(tmp_path_factory.mktemp("guarded") / "journal.db", life.journal))


def said(capsys: Capture, *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["ctl", "quality", *words]) == code
    out, err = capsys.readouterr()
    return out if code in (0, 5) else err


def told(capsys: Capture, *words: str, code: int = 0) -> dict[str, Any]:
    answer = json.loads(said(capsys, *words, "--json", code=code).splitlines()[-1])
    assert answer["schema_version"] == 1
    return dict(answer)


def test_the_report_compares_each_metric_with_its_baseline(life: GuardedWorld, journal: str, capsys: Capture) -> None:
    page = said(capsys, "report", "--file", journal)
    assert len(page.splitlines()) <= 24 and "every 3 steps" in page and "baseline    step 0" in page
    found = told(capsys, "report", "--file", journal)
    (metric,) = found["metrics"]
    last = life.of(ev.QualityMeasured)[-1]
    now = sum(value or 0.0 for value in last.figures["facts.passed"].values()) / ITEMS
    assert (metric["metric"], metric["baseline"], metric["now"]) == ("facts.passed", 1.0, now)
    assert metric["drop"] == pytest.approx(1.0 - now) and metric["low"] <= metric["drop"] <= metric["high"]
    assert metric["looks"] == life.state.quality.metrics["facts.passed"].looks and metric["margin"] == 0.05
    steps = [(one["step"], one["outcome"]) for one in found["looks"]]
    assert steps[:2] == [(0, "baseline")] * 2 and (6, "alarm") in steps and (3, "passed") in steps
    assert len(steps) == len(life.of(ev.QualityMeasured)) and found["incidents"][0]["state"] == "settled"


def test_an_incident_names_what_its_steps_had_learned(life: GuardedWorld, journal: str, capsys: Capture) -> None:
    (alarm,), (back,) = life.of(ev.QualityAlarmed), life.of(ev.RollbackStarted)
    shown = told(capsys, "incident", "show", "1", "--file", journal)["incident"]
    assert (shown["step"], shown["to"], shown["undone"]) == (alarm.step, alarm.to, list(back.undone))
    drop = alarm.drops["facts.passed"]
    assert shown["drops"] == {"facts.passed": {"drop": drop.drop, "low": drop.low, "high": drop.high}}
    places = {e.example: (e.source, e.line) for e in life.of(ev.ExampleAccepted)}
    assert [e["example"] for e in shown["examples"]] == list(back.examples) and "e" in back.examples
    assert all((e["source"], e["line"]) == places[e["example"]] for e in shown["examples"])
    page = said(capsys, "incident", "show", "1", "--file", journal)
    assert f"taken back  {', '.join(map(str, back.undone))}" in page and "by the quality guard: " in page
    path = next(e["path"] for e in shown["examples"] if e["example"] == "e")
    assert f"    e  {path}:{places['e'][1]}\n" in page
    (listed,) = told(capsys, "incident", "list", "--file", journal)["incidents"]
    assert listed["incident"] == 1 and listed["state"] == "settled"
    assert said(capsys, "incident", "show", "--file", journal) == page
    assert "the last one is 1" in said(capsys, "incident", "show", "2", "--file", journal, code=1)


def test_an_alarm_that_waits_for_a_person_says_so(tmp_path: Path, capsys: Capture) -> None:
    world = guarded_life("manual")
    path = str(write_story(tmp_path / "open.db", world.journal))
    page = said(capsys, "incident", "show", "1", "--file", path)
    assert "incident    1, open" in page and "settled     not yet: the last good weights are back" in page
    world.give(inp.TrainingResumed(by="anna"))
    page = said(capsys, "incident", "show", "1", "--file", str(write_story(tmp_path / "over.db", world.journal)))
    assert "by anna: resumed by anna" in page


def test_a_journal_without_a_measurement_has_an_empty_report(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_story(tmp_path / "new.db", GuardedWorld(guarded(every_steps=0)).up().journal))
    page = said(capsys, "report", "--file", path)
    assert "only on request" in page and "none yet" in page and "no alarm" in page
    assert told(capsys, "incident", "list", "--file", path)["incidents"] == []
    assert "the guard raised no alarm" in said(capsys, "incident", "show", "1", "--file", path, code=1)
    assert "the guard raised no alarm" in said(capsys, "incident", "show", "--file", path, code=1)


def test_probes_that_were_not_asked_are_named_with_the_example_that_holds_them(tmp_path: Path, capsys: Capture) -> None:
    world = guarded_life()
    last = world.of(ev.QualityMeasured)[-1]
    names = {f"text/p{n}": f"e{n} of /logs/a\x1b.jsonl:{n}" for n in range(7)}
    story = [*(one.event for one in world.journal), msgspec.structs.replace(last, number=99, left_out=names)]
    path = str(write(tmp_path / "left.db", story))
    page = said(capsys, "report", "--file", path)
    assert "  text/p4: example e4 of /logs/a\\x1b.jsonl:4\n  and 2 more\n" in page and "text/p5" not in page
    assert told(capsys, "report", "--file", path)["looks"][-1]["left_out"] == names
    assert "not asked" not in said(capsys, "report", "--file", str(write_story(tmp_path / "all.db", world.journal)))


def test_the_report_says_what_was_learned_of_patterns(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_story(tmp_path / "dreamt.db", story()))
    settled = told(capsys, "report", "--file", path)["patterns"][0]
    assert (settled["name"], settled["state"], settled["baseline_bare"], settled["last_bare"]) == (
        "ask",
        "settled",
        0,
        4,
    )
    row = next(line for line in said(capsys, "report", "--file", path).splitlines() if line.startswith("ask "))
    assert row.split() == "ask settled 0 -> 4 4 -> 4 4".split()


# --- what is asked for -----------------------------------------------------------------------------------------------


def test_a_wish_is_recorded_and_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    config = reached(tmp_path, monkeypatch)
    text = said(capsys, "baseline", "--no-wait", "--socket", "unused").splitlines()[-1]
    assert text.startswith("a baseline is asked for; waits: ")
    answer = told(capsys, "run", "--no-wait", "--socket", "unused")
    assert answer["after"] == 2 and answer["reason"]
    main(["ctl", "events", "--json", "--file", str(config.journal_path)])
    events = json.loads(capsys.readouterr().out)["events"]
    assert [(e["kind"], e["body"]["baseline"]) for e in events] == [("quality.wished", True), ("quality.wished", False)]


def test_nothing_is_measured_while_an_alarm_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    config: Config = reached(tmp_path, monkeypatch)
    write_story(config.journal_path, guarded_life("manual").journal)
    error = said(capsys, "run", "--socket", "unused", code=1)
    assert "alarm 1 of the quality guard is not settled" in error and "incident show 1" in error


def test_a_baseline_is_taken_while_what_came_back_cannot_be_compared_with_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    config: Config = reached(tmp_path, monkeypatch)
    world = GuardedWorld(guarded(every_steps=3)).up()
    world.poison = {"bad": ITEMS}
    world.lines("a", "bad", "c")
    while not world.of(ev.QualityAlarmed):
        World.settle(world)
        world.look()
    World.settle(world)
    world.probes = "others"
    world.look()
    write_story(config.journal_path, world.journal)
    assert "is not settled" in said(capsys, "run", "--socket", "unused", code=1)
    assert "a baseline is asked for\n" in said(capsys, "baseline", "--no-wait", "--socket", "unused")


class Daemon:
    """A guarded world behind the socket. It is measured the second time that somebody looks at the status."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, world: GuardedWorld) -> None:
        self.world, self.root, self.asked = world, root, 0
        self.fails = False
        self.away = ""
        """why nothing is measured when somebody looks for the first time"""
        world.answers = False
        monkeypatch.setattr(quality_verb.ctl, "ask", lambda path, request, timeout_s=0.0: self.wish(request))
        monkeypatch.setattr(quality_verb, "ask_status", lambda path: self.status())
        monkeypatch.setattr(quality_verb, "POLL_S", 0.0)

    def wish(self, request: Any) -> dict[str, Any]:
        self.world.give(inp.QualityWanted(request.by, request.baseline))
        wished = [r.seq for r in self.world.journal if isinstance(r.event, ev.QualityWished)]
        return {"after": wished[-1], "reason": "", "step": 0, "schema_version": 1}

    def status(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked > 1 and self.world.probed:
            if self.fails:
                self.world.give(inp.ProbesFailed(self.world.probed.pop(0).number, "the endpoint went away"))
            else:
                self.world.look()
        own = self.world.state.quality
        path = write_story(self.root / f"{self.asked}.db", self.world.journal)
        quality = {"asked": own.asked, "error": own.error, "running": own.open is not None, "reason": ""}
        if self.asked == 1 and self.away:
            quality |= {"running": False, "reason": self.away}
        return {"quality": quality, "step": self.world.state.training.version, "journal": {"path": str(path)}}


def measured(*, harm: int = 0) -> GuardedWorld:
    """Measured before one example was learned, which makes so many probes fail."""
    world = GuardedWorld(guarded(every_steps=100)).up()
    world.settle()
    world.poison = {"a": harm}
    world.lines("a")
    world.settle()
    return world


def test_a_run_waits_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    Daemon(tmp_path, monkeypatch, measured(harm=1))
    assert main(["ctl", "quality", "run", "--socket", "unused"]) == 0
    out, err = capsys.readouterr()
    assert "facts.passed" in out and "0.975" in out and "+0.0250" in out and out.startswith("step 1, measured in")
    assert err == "apollod: measuring step 1\n"


def test_a_run_tells_of_what_was_not_asked_and_of_what_raises_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    world = GuardedWorld(guarded(every_steps=100, kl_margin=0.0))
    world.more, world.left_out = {"kl": {"i00": 0.5}}, {"polite": NO_JUDGE, "kind": NO_JUDGE, "x": "e of a.jsonl:4"}
    world.up()
    world.lines("a")
    world.settle()
    Daemon(tmp_path, monkeypatch, world)
    page = said(capsys, "run", "--socket", "unused")
    assert "  x: example e of a.jsonl:4\nnot asked, since [judge] mode is off: 2 for a judge" in page
    assert next(line for line in page.splitlines() if line.startswith("kl ")).split()[-3:] == ["-", "0", "1"]
    found = told(capsys, "run", "--socket", "unused")
    assert found["left_out"] == world.left_out
    assert {one["metric"]: one["margin"] for one in found["metrics"]} == {"facts.passed": 0.05, "kl": None}
    assert world.state.quality.metrics.keys() == {"facts.passed"}


def test_a_run_that_raises_an_alarm_ends_with_five(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    Daemon(tmp_path, monkeypatch, measured(harm=ITEMS))
    found = told(capsys, "run", "--socket", "unused", code=5)
    assert found["alarm"] == {"incident": 1, "metrics": ["facts.passed"]} and found["step"] == 1
    assert found["metrics"][0]["now"] == 0.0 and found["metrics"][0]["drop"] == 1.0


def test_a_run_whose_probes_fail_ends_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    Daemon(tmp_path, monkeypatch, measured()).fails = True
    assert "the endpoint went away" in said(capsys, "run", "--socket", "unused", code=1)


def test_a_new_baseline_is_waited_for_to_its_last_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    daemon = Daemon(tmp_path, monkeypatch, measured(harm=4))
    found = told(capsys, "baseline", "--socket", "unused")
    assert daemon.asked == 3 and found["why"] == "baseline" and found["metrics"][0]["baseline"] == 0.9
    assert msgspec.structs.asdict(daemon.world.state.quality)["at"] == 1 and found["metrics"][0]["now"] is None


def test_a_baseline_that_is_asked_for_during_a_look_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    daemon = Daemon(tmp_path, monkeypatch, measured(harm=4))
    daemon.world.give(inp.QualityWanted("anna"))
    assert daemon.world.probed
    assert told(capsys, "baseline", "--socket", "unused")["why"] == "baseline" and daemon.asked == 4


def test_what_a_measurement_waits_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    Daemon(tmp_path, monkeypatch, measured()).away = "the engine is down"
    assert main(["ctl", "quality", "run", "--socket", "unused"]) == 0
    out, err = capsys.readouterr()
    assert err == "apollod: waits: the engine is down\n" and out.startswith("step 1, measured in")


def test_an_alarm_without_a_way_back_says_why(tmp_path: Path, capsys: Capture) -> None:
    alarm = ev.QualityAlarmed(1, 6, 3, ("facts.passed\x1b[2J",), {})
    refused = ev.RollbackRefused(to=3, reason="no checkpoint is left")
    path = str(write(tmp_path / "journal.db", [alarm, refused]))
    page = said(capsys, "incident", "show", "1", "--file", path)
    assert "refused     no checkpoint is left" in page and "not yet: no way back: no checkpoint is left" in page
    assert "\x1b" not in page + said(capsys, "incident", "list", "--file", path) + said(
        capsys, "report", "--file", path
    )
