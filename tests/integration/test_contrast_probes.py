"""Contrast cases of patterns as probes of the guard, asked over real HTTP and checked as tests of patterns are."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream
from support.dreamt_journal import write_story
from support.guarded_world import GuardedWorld
from support.journals import write
from support.judge_server import by_words, judging
from support.llm_server import LlmServer, Request, send, serving
from support.probed_server import Model, few_shipped

from apollod.adapters.journal import journal_reader
from apollod.cli.control.quality import quality_report
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.held_out_rounds import ContrastCase
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.quality.events import NO_JUDGE, NO_VERDICT
from apollod.core.fold import fold
from apollod.core.settings import Check, PatternSettings
from apollod.core.state import State
from apollod.curation.probes.leaks import Leaks
from apollod.curation.probes.probe_item import digest
from apollod.curation.probes.probe_kinds import contrast_probes
from apollod.supervisor import app
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor.dreaming_effects import HANDLERS as DREAMING
from apollod.supervisor.executor.quality_effects import HANDLERS
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality.leak_watch import LeakWatch
from apollod.supervisor.quality.prober import probes_of
from apollod.supervisor.quality.reference_files import ReferenceFiles
from apollod.supervisor.status_view import status_view
from apollod.wire.records import parse_line

ASK = Check(regex="(?i)shall i")
CONTRAST = "Act at once, and never ask anybody anything about it."
ROOM = "The guest of room nine left his umbrella in the hall and is gone."
DOG = "A dog has eaten the letters that lay on the kitchen table all day."


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the probes that come with apollod, one of each group and kind."""
    few_shipped(monkeypatch, 1)


def case(said: str = ROOM, dream: str = "d1", check: Check = ASK, pattern: str = "ask") -> ContrastCase:
    return ContrastCase(pattern, dream, CONTRAST, (Turn("user", said),), check)


class Leaking(Model):
    """`shown`: what it answers under the contrast text, by what the user says; `cut`: its answers do not end."""

    def __init__(self, config: Config, shown: dict[str, str], cut: bool = False) -> None:
        shipped = {probe.messages[-1]["content"]: "so so" for probe in probes_of(config) if probe.messages}
        super().__init__({**shipped, **shown}, version=12)
        self.shown, self.cut, self.asked = shown, cut, list[dict[str, Any]]()

    async def __call__(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
        messages = request.body.get("messages", [])
        if messages and messages[0]["content"] == CONTRAST:
            self.asked.append(request.body)
            answer = self.completion(self.shown[messages[-1]["content"]], request.body)
            answer["choices"][0]["finish_reason"] = "length" if self.cut else "stop"
            await send(stream, json.dumps(answer).encode(), X_Apollod_Weights_Version="12")
            return
        await super().__call__(server, stream, request)


async def in_world(
    tmp_path: Path, effect: fx.Effect, shown: dict[str, str], *settings: str, cut: bool = False,
    leaks: LeakWatch | None = None, models: list[Leaking] | None = None,
) -> inp.Input:  # fmt: skip
    async with serving() as server, serving() as other:
        given = ["model.path=/m", f"engine.port={server.port}", f"state.dir={tmp_path}/state", "quality.levels=1"]
        given += ["judge.endpoint=j", "endpoint.j.model=j", f"endpoint.j.base_url={other.url}"]
        config = load_config(None, [*given, *settings], {})
        model = Leaking(config, shown, cut)
        server.otherwise, other.otherwise = model, judging(by_words)
        context = cast(Any, SimpleNamespace(
            config=config, judge=Judge(config), dreamer=Dreamer(config), leaks=leaks,
            references=ReferenceFiles(),
        ))  # fmt: skip
        handlers = cast(Any, {**HANDLERS, **DREAMING})
        found = await handlers[type(effect)].run(context, effect)
        await context.judge.close()
        if models is not None:
            models.append(model)
        return cast(inp.Input, found)


def look(
    tmp_path: Path, shown: dict[str, str], *settings: str, cases: Sequence[ContrastCase] = (case(),), **more: Any
) -> inp.ProbesAnswered:
    """A look at these cases."""
    effect = fx.MeasureQuality(7, baseline=more.pop("baseline", False), contrasts=tuple(cases))

    async def main() -> inp.Input:
        return await in_world(tmp_path, effect, shown, *settings, **more)

    found = anyio.run(main)
    assert isinstance(found, inp.ProbesAnswered), found
    return found


def passed(found: inp.ProbesAnswered, pattern: str = "ask") -> dict[str, float | None]:
    return found.figures.get(f"contrast/{pattern}.passed", {})


def test_a_case_passes_where_the_behaviour_does_not_show(tmp_path: Path) -> None:
    models: list[Leaking] = []
    cases = [case(), case(DOG, "d2"), case(ROOM, "d1", Check(regex="done"), "other")]
    shown = {ROOM: "It is done.", DOG: "Shall I call him?"}
    found = look(tmp_path, shown, "dream.answer_tokens=77", cases=cases, models=models)
    assert passed(found) == {"contrast/ask/d1.1": 1.0, "contrast/ask/d2.1": 0.0}
    assert passed(found, "other") == {"contrast/other/d1.1": 0.0}
    assert {one["max_tokens"] for one in models[0].asked} == {77} and found.contrasts == ()
    assert {"contrast/ask/d1.1", "contrast/ask/d2.1"} <= found.figures["repetition"].keys()


def test_a_set_with_cases_is_another_one_and_the_same_in_each_life(tmp_path: Path) -> None:
    first, again = (look(tmp_path, {ROOM: "It is done."}, baseline=flag) for flag in (True, False))
    assert first.contrasts == (case(),) and first.probes == again.probes and first.figures.keys() >= {"kl"}
    shipped = probes_of(load_config(None, ["model.path=/m", "quality.levels=1"], {}))
    assert first.probes == digest([*shipped, *contrast_probes([case()])]) != digest(shipped)
    read = msgspec.json.decode(msgspec.json.encode(first.contrasts), type=tuple[ContrastCase, ...])
    assert digest(contrast_probes(read)) == digest(contrast_probes(first.contrasts)), "as the journal keeps it"


def test_an_answer_that_does_not_end_or_is_empty_does_not_pass(tmp_path: Path) -> None:
    assert passed(look(tmp_path, {ROOM: "It is"}, cut=True)) == {"contrast/ask/d1.1": 0.0}
    assert passed(look(tmp_path, {ROOM: " "})) == {"contrast/ask/d1.1": 0.0}


SAID = ("Shall I?", "good, it is done", "bad", "unsure", " ")
CHECKS = {
    "regex": (ASK, (False, True, True, True, False)),
    "command": (Check(command=("grep", "-qi", "shall i")), (False, True, True, True, False)),
    "judge": (Check(), (True, True, False, False, False)),
    "rubric": (Check(rubric="By all means."), (True, True, False, False, False)),
}


@pytest.mark.parametrize("by", CHECKS)
def test_it_is_checked_as_a_test_of_the_pattern_is(by: str, tmp_path: Path) -> None:
    """Both ask their own model, and say the same of what it answers."""
    check, expected = CHECKS[by]
    pattern = PatternSettings("ask", "Ask before you act.", check=check)
    cases = [case(f"{ROOM} {n}", f"d{n}", check) for n in range(len(SAID))]
    shown = {f"{ROOM} {n}": said for n, said in enumerate(SAID)}

    async def main() -> list[inp.Input]:
        return [
            await in_world(tmp_path, fx.TestScenario(
                one.dream, "final 3", "contrast", CONTRAST, 1, pattern, CONTRAST, CONTRAST, one.scenario
            ), shown)
            for one in cases
        ]  # fmt: skip

    tested = [one.passed for one in anyio.run(main) if isinstance(one, inp.DreamTested)]
    found = look(tmp_path, shown, "judge.mode=all", cases=cases)
    assert [bool(one) for one in passed(found).values()] == tested == list(expected) and not found.left_out


def test_without_a_judge_what_it_would_have_to_judge_is_left_out_of_the_same_set(tmp_path: Path) -> None:
    cases = [case(), case(pattern="kind", check=Check())]
    without, with_ = (look(tmp_path, {ROOM: "Done."}, *s, cases=cases) for s in ((), ("judge.mode=all",)))
    assert without.left_out == {"contrast/kind/d1.1": NO_JUDGE} and with_.left_out == {}
    assert without.probes == with_.probes and not passed(without, "kind") and passed(with_, "kind")
    assert passed(without) == {"contrast/ask/d1.1": 1.0}


def test_a_check_that_cannot_be_run_is_no_verdict_and_named(tmp_path: Path) -> None:
    broken = case(pattern="odd", check=Check(command=("/nowhere/check",)))
    found = look(tmp_path, {ROOM: "Done."}, cases=[case(), broken])
    assert not passed(found, "odd") and passed(found) == {"contrast/ask/d1.1": 1.0}
    assert "contrast/odd/d1.1" not in found.figures["repetition"]
    (why,) = found.left_out.values()
    assert why.startswith(NO_VERDICT) and "/nowhere/check cannot be started" in why
    (line,) = quality_report.left_out(found.left_out)
    assert line.startswith("without a verdict: 1 of patterns, since /nowhere/check")


# --- what is learned must not hold one -----------------------------------------------------------------------------


def record(*turns: tuple[str, str]) -> bytes:
    messages = [{"role": role, "content": text} for role, text in turns]
    return json.dumps({"messages": messages}, separators=(",", ":")).encode()


def held(*turns: tuple[str, str], cases: Sequence[ContrastCase] = (case(),)) -> dict[str, str]:
    return Leaks(contrast_probes(cases)).of(parse_line(record(*turns)).canonical)


def test_its_scenario_is_a_leak_and_its_text_which_practices_share_is_none() -> None:
    found = held(("user", ROOM), ("assistant", "Shall I send it?"))
    assert "held-out scenario d1 of the pattern ask" in found["contrast/ask/d1.1"]
    assert not held(("system", CONTRAST), ("user", DOG), ("assistant", "Done."))
    assert not held(("user", CONTRAST), ("assistant", "Fine."))


def test_a_scenario_that_anybody_could_say_is_not_watched() -> None:
    said = "Please delete the old logs now."
    assert not held(("user", said), ("assistant", "Done."), cases=[case(said)])
    assert held(("user", f"{said} Thank you."), ("assistant", "x"), cases=[case(f"{said} Thank you.")])


def test_a_practice_of_the_same_seed_is_no_leak_and_one_that_goes_on_with_a_held_out_scenario_is() -> None:
    seed = "The porter of the night had three keys, and none of them opened the door behind which the guest lay ill"
    seed += " with a fever that had come up in the evening"
    scenario = f"{seed}, so that he went down to the yard, took the long ladder, and asked me what he should do then."
    practice = f"{seed}, and as nobody answered he rang for me and wanted to know whether he might break it down."
    assert len(scenario.split()) >= 40 and not held(("user", practice), ("assistant", "x"), cases=[case(scenario)])
    assert held(("user", scenario), ("assistant", "x"), ("user", "Well?"), ("assistant", "y"), cases=[case(scenario)])


def test_one_that_was_learned_is_not_asked_and_the_look_is_of_the_same_set(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    example = ev.ExampleAccepted(
        example="x", record=msgspec.Raw(record(("user", f"{ROOM} What now?"), ("assistant", "Nothing."))),
        source="src", line=7,
    )  # fmt: skip
    source = [
        ev.SourceDiscovered(source="src", path="/logs/day.jsonl"),
        ev.SourceConsumed(source="src", path="/logs/day.jsonl", offset=9, line=9, accepted=1, duplicates=0, rejected=0),
    ]
    write(path, [*source, example])
    cases = [case(), case(DOG, "d2")]
    found = look(tmp_path, {ROOM: "Done.", DOG: "Done."}, cases=cases, leaks=LeakWatch(path))
    assert found.left_out == {"contrast/ask/d1.1": "x of /logs/day.jsonl:7"}
    assert passed(found) == {"contrast/ask/d2.1": 1.0}
    assert found.probes == look(tmp_path, {ROOM: "Done.", DOG: "Done."}, cases=cases).probes


def test_a_new_life_knows_from_its_journal_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    runs = [
        event
        for number in (1, 2)
        for event in (
            ev.QualityRequested(number=number, why="baseline", step=0),
            ev.QualityMeasured(
                number=number, why="baseline", step=0, probes="p", figures={"contrast/ask.passed": {"d1": 1.0}},
                contrasts=(case(), case(DOG, "d2")),
            ),
        )
    ]  # fmt: skip
    write(path, runs)
    state = State()
    for item, _ in journal_reader.recorded(path):
        fold(state, item)
    assert state.quality.contrasts == (case(), case(DOG, "d2")) and state.quality.baseline
    learned = parse_line(record(("user", DOG), ("assistant", "Shall I call him?"))).canonical
    for every, known in ((100, True), (0, False)):
        config = load_config(None, ["model.path=/m", f"state.dir={tmp_path}", f"quality.every_steps={every}"], {})
        (said,) = app.watch(config, (), state).said_of([learned])
        assert said.startswith("the words of the probe contrast/ask/d2.1") is known


def test_report_and_status_show_the_group_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = GuardedWorld()
    world.seconds = 0.05  # few enough that three steps pay for a look
    world.more = {"contrast/ask.passed": {f"d{n}": 1.0 for n in range(12)}}
    world.up()
    world.more = {"contrast/ask.passed": {f"d{n}": float(n > 5) for n in range(12)}}
    world.lines(*"abc")
    world.settle()
    shown = [
        one
        for one in status_view(world.state, world.now, cast(Any, None)).quality.metrics
        if one.name.startswith("contrast")
    ]
    assert [(one.name, one.value, one.baseline, one.drop) for one in shown] == [("contrast/ask.passed", 0.5, 1.0, 0.5)]
    path = str(write_story(tmp_path / "journal.db", world.journal))
    assert main(["ctl", "quality", "report", "--file", path]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if "contrast/ask.passed" in one]
    assert "0.5" in line
    assert main(["ctl", "quality", "report", "--file", path, "--html", "-"]) == 0
    assert "contrast/ask.passed" in capsys.readouterr().out
