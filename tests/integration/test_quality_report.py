"""The quality report: what was learned and spent, and the page that somebody opens on a phone."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.dreamt_journal import write_story
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.journals import write
from support.world import changed

from apollod.adapters.journal.journal_reader import query
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp

Capture = pytest.CaptureFixture[str]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def lived(path: Path) -> Path:
    """The journal of a life with an alarm."""
    world = GuardedWorld(guarded(every_steps=4)).up()
    world.poison = {"bad": ITEMS}
    world.losses["known"] = 0.0
    world.lines("a", "b", "<script>alert(1)</script>", "c", "bad", "d", "e", "f", "known")
    world.settle()
    return write_story(path, world.journal)


def page(path: Path, capsys: Capture) -> str:
    assert main(["ctl", "quality", "report", "--file", str(path), "--html", "-"]) == 0
    return capsys.readouterr().out


def test_what_was_learned_and_what_it_cost_is_told(tmp_path: Path, capsys: Capture) -> None:
    path = lived(tmp_path / "journal.db")
    assert main(["ctl", "quality", "report", "--json", "--file", str(path)]) == 0
    report = json.loads(capsys.readouterr().out)
    (bulk,) = report["learned"]["tiers"]
    assert (bulk["tier"], bulk["examples"], bulk["steps"]) == ("bulk", 7, 7), "what was taken back does not count"
    assert report["learned"]["known"] == 1
    spent = {one["what"]: one["count"] for one in report["spent"]}
    assert spent["steps that count"] == 8 and spent["steps taken back"] == 4
    assert spent["replays of searches"] > 2 and spent["probes"] == len(report["looks"])
    (series,) = report["series"]
    assert (series["metric"], series["baseline"], series["margin"]) == ("facts.passed", 1.0, 0.05)
    points = series["points"]
    assert len(points) == len(report["looks"]) and [one["value"] for one in points if one["undone"]] == [0.0]


class Hard(GuardedWorld):
    """The model passes 2 of 40 of the group `hard`."""

    def look(self) -> list[ev.Event]:
        passed = {f"h{n}": float(n < 2) for n in range(ITEMS)}
        self.more = {} if "hard" in self.probed[0].without else {"hard.passed": dict(passed)}
        return super().look()


def test_it_says_what_is_not_asked_and_what_steps_hold(tmp_path: Path, capsys: Capture) -> None:
    world = Hard(changed(guarded(every_steps=3), hold=1.0)).up()
    world.lines("a", "b", "c", "d")
    world.settle()
    path = write_story(tmp_path / "journal.db", world.journal)
    assert main(["ctl", "quality", "report", "--json", "--file", str(path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["silent"] == {"hard": [2, 40]} and [one["metric"] for one in report["metrics"]] == ["facts.passed"]
    held = [one for e in world.of(ev.StepCompleted) for one in e.held]
    anchors = len(world.state.holding.anchors)
    assert held and report["holding"] == {
        "anchors": anchors, "steps": 4, "moved": pytest.approx(sum(held) / len(held)), "moved_max": max(held)
    }  # fmt: skip
    assert main(["ctl", "quality", "report", "--file", str(path)]) == 0
    said = capsys.readouterr().out
    assert "not asked   hard (2 of 40 pass): too hard for this model" in said
    assert f"holding     {anchors} answers of before; the last 4 steps found the model" in said


def scored_twice() -> GuardedWorld:
    """A life in which two examples were scored, learned and scored again."""
    world = GuardedWorld(changed(guarded(every_steps=0), divergence="all")).up()
    world.give(inp.TrainingPaused("t"))
    world.lines("a", "b", stripped=True)
    for example, told, untold in (("a", -1.0, -3.0), ("b", -0.5, -2.5), ("a", -0.5, -1.5), ("b", -0.5, -2.75)):
        world.settle_until(fx.ScoreExample)
        asked = world.asked.popleft()
        assert isinstance(asked, fx.ScoreExample) and asked.example == example
        world.give(inp.ExampleScoreDone(example, told, untold, 4, world.state.training.version, after=asked.after))
        if (example, told) == ("b", -0.5) and not world.state.training.version:
            world.give(inp.TrainingResumed("t"))
    return world


def test_what_the_untold_model_says_before_and_after_is_compared_for_the_same_examples(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write_story(tmp_path / "journal.db", scored_twice().journal)
    assert main(["ctl", "quality", "report", "--json", "--file", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)["divergence"]
    assert (found["before"]["untold"], found["after"]["untold"]) == (-2.75, -2.125)
    assert (found["both"], found["likelier"], found["untold_before"]) == (2, 1, -2.75)
    assert found["closed"] == 0.625 / 2
    assert found["tiers"] == [
        {"tier": "bulk", "both": 2, "likelier": 1, "told_before": -0.75, "untold_before": -2.75, "untold_after": -2.125,
         "closed": 0.3125}
    ]  # fmt: skip
    assert main(["ctl", "quality", "report", "--file", str(path)]) == 0
    told = (
        "1 of 2 learned answers got likelier, -2.750 -> -2.125 nats a token on average, 31% of the way to the told ones"
    )
    assert told in " ".join(capsys.readouterr().out.split())
    assert told.replace(">", "&gt;") in page(path, capsys)
    rows = query(path, "SELECT example, without_context, after_step, after_without_context FROM scores ORDER BY 1").rows
    assert rows == [("a", -3.0, 1, -1.5), ("b", -2.5, 2, -2.75)]


def test_each_tier_is_told_of_where_there_are_two(tmp_path: Path, capsys: Capture) -> None:
    world = GuardedWorld(changed(guarded(every_steps=0), divergence="all")).up()
    world.give(inp.TrainingPaused("t"))
    world.lines("a", stripped=True)
    world.lines("b", source="g", tier="direct", stripped=True)
    world.settle()
    world.give(inp.TrainingResumed("t"))
    world.settle_until(fx.ScoreExample)
    world.asked.popleft()
    world.give(inp.ExampleScoreDone("b", -1.0, -2.0, 4, 2, after=1))
    world.settle()
    path = write_story(tmp_path / "journal.db", world.journal)
    assert main(["ctl", "quality", "report", "--file", str(path)]) == 0
    said = capsys.readouterr().out
    for tier, told in (("bulk", "0 of 1 learned answers"), ("direct", "1 of 1 learned answers")):
        assert f"            {tier}: {told}" in said and f"<br>{tier}: {told}" in page(path, capsys)
    assert "direct: 1 of 1 learned answers got likelier, -3.000 -> -2.000 nats a token on average, 50%" in said


def test_a_second_score_after_a_step_that_was_taken_back_does_not_count(tmp_path: Path, capsys: Capture) -> None:
    """Nor does it pass for one of before, once the example was learned again."""

    def divergence(world: GuardedWorld, name: str) -> dict[str, Any]:
        path = write_story(tmp_path / name, world.journal)
        assert main(["ctl", "quality", "report", "--json", "--file", str(path)]) == 0
        rows = query(path, "SELECT example, after_step FROM scores ORDER BY 1").rows
        return {**json.loads(capsys.readouterr().out)["divergence"], "rows": rows}

    world = scored_twice()
    world.give(inp.RollbackRequested(to=1, by="p"))
    world.settle_until(fx.ScoreExample)
    found = divergence(world, "back.db")
    assert (found["before"]["untold"], found["after"], found["both"]) == (-3.0, None, 0), "both were of step 2"
    assert found["rows"] == [("a", None), ("b", None)]
    world.settle()
    world.give(inp.RelearnRequested((("b", "bulk"),), "p"))
    world.settle_until(fx.ScoreExample)
    found = divergence(world, "again.db")
    assert (found["before"]["untold"], found["after"]["examples"]) == (-2.75, 1) and found["rows"][1] == ("b", None)
    world.settle()
    found = divergence(world, "twice.db")
    assert (found["both"], found["rows"]) == (2, [("a", 1), ("b", 3)])


class Tags(HTMLParser):
    """Every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br", "circle", "line", "path", "polyline", "rect", "polygon"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


@pytest.mark.parametrize("empty", [False, True])
def test_the_page_is_one_file_that_asks_nobody_for_anything(empty: bool, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "journal.db"
    path = write_story(path, GuardedWorld().up().journal[:1]) if empty else lived(path)
    text = page(path, capsys)
    assert not re.search(r"https?:|<script|@import|url\(|<link|<img", text)
    tags = Tags()
    tags.feed(text)
    assert not tags.open, tags.open
    for title in ("Is it well?", "What did it learn?", "Did it get worse?", "Incidents", "What did it cost?"):
        assert title in text
    assert ("<code>apollod ctl quality baseline</code>" in text) is empty
    assert ("svg" in tags.seen) is not empty and 'name="viewport"' in text and "prefers-color-scheme" in text


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, capsys: Capture) -> None:
    path, out = lived(tmp_path / "journal.db"), tmp_path / "report.html"
    out.write_text("old")
    assert main(["ctl", "quality", "report", "--file", str(path), "--html", str(out)]) == 0
    assert out.read_text().startswith("<!DOCTYPE html>") and [one.name for one in tmp_path.glob("*.part*")] == []
    capsys.readouterr()
    assert main(["ctl", "quality", "report", "--file", str(path), "--html", str(tmp_path / "none" / "a.html")]) != 0
    said = capsys.readouterr().err
    assert "cannot be written" in said and "Traceback" not in said


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium here")
def test_nothing_is_wider_than_a_phone(tmp_path: Path, capsys: Capture) -> None:
    text = page(lived(tmp_path / "journal.db"), capsys)
    probe = "<script>document.title = 'wide ' + document.documentElement.scrollWidth</script></body>"
    (tmp_path / "copy.html").write_text(text.replace("</body>", probe))
    frame = f'<iframe id="f" src="file://{tmp_path}/copy.html" style="width:360px;height:800px;border:0"></iframe>'
    (tmp_path / "frame.html").write_text(
        f"<!DOCTYPE html>{frame}<script>f.onload = () => {{ document.title = f.contentDocument.title }}</script>"
    )
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += [f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(
        [*command, f"file://{tmp_path}/frame.html"], capture_output=True, text=True, timeout=60, check=True
    )
    found = re.search(r"<title>wide (\d+)</title>", done.stdout)
    assert found and int(found[1]) <= 360, done.stdout[:500]


# --- rewards and comparisons ----------------------------------------------------------------------------------------


def rewarded(path: Path, groups: int) -> Path:
    """The journal of a life that learned groups whose rewards rise, a pair and three ratings."""
    world = GuardedWorld(guarded(every_steps=0)).up()
    events = [one.event for one in world.journal]
    for number in range(1, groups + 1):
        example, score = f"{number:032x}", number / groups
        step = step_of(number, example, "grpo", {"ratio": 1.01, "kl": 0.002, "entropy": 0.9})
        events += [ev.GroupSampled("sums", number, example, (0.0, score), 0, 0, 8), *step]
    events += step_of(groups + 1, "p" * 32, "dpo", {"margin": 0.25, "right": 1.0})
    events += step_of(groups + 2, "r" * 32, "kto", {"gained": 0.5, "right": 0.0})
    return write(path, events)


def step_of(step: int, example: str, objective: str, metrics: dict[str, float]) -> list[ev.Event]:
    return [
        ev.StepStarted(step, step - 1, example, "d", 1e-4, 1, objective=objective),
        ev.StepCompleted(
            step, step - 1, example, True, 0.5, 1e-4, 1.0, 1.0, 9, 2, 0, 0, "f" * 16, 1.0, metrics=metrics
        ),
    ]


def test_rewards_rise_on_the_page_and_comparisons_are_counted(tmp_path: Path, capsys: Capture) -> None:
    path = rewarded(tmp_path / "journal.db", 25)
    assert main(["ctl", "quality", "report", "--json", "--file", str(path)]) == 0
    report = json.loads(capsys.readouterr().out)
    (curve,) = report["rewards"]
    assert (curve["environment"], curve["groups"]) == ("sums", 25)
    assert [one["step"] for one in curve["points"]] == [10, 20, 25]
    assert curve["points"][0]["reward"] == pytest.approx(0.11) and curve["last"]["kl"] == 0.002
    assert curve["last"]["clipped"] is None
    assert [(one["what"], one["learned"], one["margin"]) for one in report["comparisons"]] == [
        ("pairs", 1, 0.25), ("ratings", 1, None)
    ]  # fmt: skip
    assert main(["ctl", "quality", "report", "--file", str(path)]) == 0
    said = capsys.readouterr().out
    assert "sums: 25 groups, mean reward 0.11 -> 0.46 (ratio 1.01, kl 0.002, entropy 0.9)" in said
    assert "1 learned, margin 0.25 before they were learned, 50% of the last comparisons were right before" in said
    text = page(path, capsys)
    assert "mean reward of sums from step 10 to 25" in text and "Pairs: 1 learned, margin 0.25" in text
    tags = Tags()
    tags.feed(text)
    assert not tags.open
