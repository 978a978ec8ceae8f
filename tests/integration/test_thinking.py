"""A served model that thinks, with the templates of Qwen3 and Qwen3.5, with a reasoning parser and without, on and off:
what is imagined, answered, judged and learned, over real HTTP, down to the tokens."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
from support.effort import cases
from support.llm_server import LlmServer, serving
from support.thinking_server import TEMPLATES, Parser, ThinkingModel

from apollod.adapters.journal import blobs
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.lessons.events import Wording
from apollod.core.facts.lessons.inputs import Ask
from apollod.core.facts.lessons.stages import Stage
from apollod.core.settings import Check, PatternSettings
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor import Executor
from apollod.supervisor.judge import Judge
from apollod.trainer.objectives.context import CONTEXT
from apollod.wire.records import decode_record
from apollod.wire.teacher import GivenTeacher

NONE = cast(Any, None)
SCENARIO = (Turn("user", "Hello!"),)
EXACT = PatternSettings("ahoy", "Say Ahoy.", check=Check(regex=r"\AAhoy\.\Z"), objective="context")
JUDGED = PatternSettings("ahoy", "Say Ahoy.")
GOOD = json.dumps({"quote": "Ahoy.", "reason": "as told", "verdict": "good"})
PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n<think>\n"
OFF = f"{PROMPT}\n</think>\n\n«Ahoy.<|im_end|>»\n"
ON = f"{PROMPT}Greet.\n</think>\n\n«Ahoy.<|im_end|>»\n"
PARSERS: tuple[Parser, ...] = ("", "reasoning", "reasoning_content")

ALL = list(product(TEMPLATES, PARSERS, ("off", "on", "template")))
HERE = ALL[::2]  # with either template every parser and every way to think, and of these two every pair
every = pytest.mark.parametrize(("template", "parser", "thinking"), cases(HERE, ALL[1::2]))


def of(model: ThinkingModel, tmp_path: Path, *sets: str, effects: Sequence[fx.Effect]) -> tuple[list[Any], LlmServer]:
    """The inputs that answer these effects, and the server that was asked."""
    inputs: list[inp.Input] = []

    async def run() -> LlmServer:
        async with serving() as server, anyio.create_task_group() as tasks:
            server.otherwise = model.behave

            async def submit(input_: inp.Input) -> Sequence[ev.Recorded]:
                inputs.append(input_)
                return []

            config: Config = load_config(
                None, ["model.path=/m", f"state.dir={tmp_path}", f"engine.port={server.port}", *sets], {}
            )
            dreamer = Dreamer(config)
            executor = Executor(config, NONE, NONE, NONE, submit, tasks, Judge(config), dreamer)
            for count, effect in enumerate(effects, 1):
                await executor.run(effect)
                with anyio.fail_after(120):
                    while len(inputs) < count:
                        await anyio.sleep(0.003)
            return server

    return inputs, anyio.run(run)


def answering(told: str = "Say Ahoy.") -> fx.AnswerScenario:
    return fx.AnswerScenario("d1", 1, SCENARIO, told)


def judging(pattern: PatternSettings = EXACT, answer: str = "Ahoy.") -> fx.JudgeDream:
    told = pattern.instruction
    return fx.JudgeDream("d1", 1, "judging", pattern, "bare", told, SCENARIO, answer, told)


@every
def test_a_dream_is_answered_judged_and_learned_without_its_thoughts(
    tmp_path: Path, template: str, parser: Parser, thinking: str
) -> None:
    model = ThinkingModel(TEMPLATES[template], parser)
    sets = (f"dream.thinking={thinking}",)
    (answered, verdict), server = of(model, tmp_path, *sets, effects=[answering(), judging()])
    assert isinstance(answered, inp.DreamAnswered) and answered.answer == "Ahoy."
    assert (answered.logprob is None) == (thinking != "off"), "a mean over thoughts says nothing of the answer"
    assert isinstance(verdict, inp.DreamVerdict) and verdict.judged.verdict == "good" and verdict.line is not None
    assert model.learned(verdict.line.record) == (OFF if thinking == "off" else ON)
    kwargs = [one.body.get("chat_template_kwargs") for one in server.requests if one.path.endswith("completions")]
    wanted = None if thinking == "template" else {"enable_thinking": thinking == "on"}
    assert kwargs[0] == wanted


@every
def test_a_teacher_is_asked_about_the_very_tokens_that_are_learned(
    tmp_path: Path, template: str, parser: Parser, thinking: str
) -> None:
    """Else the trainer refuses them."""
    model = ThinkingModel(TEMPLATES[template], parser)
    (verdict,), server = of(model, tmp_path, f"dream.thinking={thinking}", effects=[judging()])
    assert isinstance(verdict, inp.DreamVerdict) and verdict.line is not None and verdict.teacher
    record = decode_record(verdict.line.record)
    given = GivenTeacher(verdict.teacher, (tmp_path / blobs.NAME / verdict.teacher).read_bytes())
    tokens = CONTEXT.encode(model.tokenizer, msgspec.structs.replace(record, teacher=given), 1000)
    assert model.tokenizer.decode(tokens.learned) == "Ahoy.<|im_end|>"
    scored = next(one.body["prompt"] for one in server.requests if "prompt_logprobs" in one.body)
    told = model.tokenizer.decode(scored)
    assert told.endswith((OFF if thinking == "off" else ON).replace("«", "").replace("»\n", "").rpartition(PROMPT)[2])
    assert "Say Ahoy." in told and "They want" not in told


@every
def test_the_judge_of_a_dream_sees_no_thought_and_is_read_without_its_own(
    tmp_path: Path, template: str, parser: Parser, thinking: str
) -> None:
    model = ThinkingModel(TEMPLATES[template], parser, GOOD, told="A verdict? {bad}")
    sets = (f"judge.thinking={thinking}", "judge.votes=1")
    (verdict,), server = of(model, tmp_path, *sets, effects=[judging(JUDGED)])
    assert isinstance(verdict, inp.DreamVerdict) and (verdict.judged.verdict, verdict.judged.by) == ("good", "judge")
    assert "They want" not in str(server.requests[0].body["messages"])


@pytest.mark.parametrize(("template", "parser"), list(product(TEMPLATES, PARSERS)))
def test_a_thought_that_does_not_end_is_no_answer(tmp_path: Path, template: str, parser: Parser) -> None:
    model = ThinkingModel(TEMPLATES[template], parser, stops=True)
    sets = ("dream.thinking=on", "lessons.thinking=on")
    asks = fx.AskLesson("L1", 1, Stage.TESTING, "bare", 2, 5, "", (Ask(0, "Hello!", "Greet."),))
    (failed, asked, verdict), _ = of(model, tmp_path, *sets, effects=[answering(), asks, judging()])
    assert isinstance(failed, inp.DreamCallFailed) and failed.cause == "cut"
    assert isinstance(asked, inp.LessonAsked) and [(one.text, one.passed) for one in asked.answers] == [("", False)]
    assert isinstance(verdict, inp.DreamVerdict) and verdict.line is not None
    assert model.learned(verdict.line.record) == OFF, "an unfinished thought is no context"


@every
def test_a_lesson_is_asked_and_learned_without_thoughts(
    tmp_path: Path, template: str, parser: Parser, thinking: str
) -> None:
    """What is thought names the answer, too, and is not matched with it."""
    model = ThinkingModel(TEMPLATES[template], parser, says="Ahoy.", bare="Greet.")
    asks = fx.AskLesson("L1", 1, Stage.TESTING, "bare", 2, 5, "", (Ask(0, "Hello!", "Ahoy."), Ask(1, "Hi!", "Greet.")))
    wording = Wording("Hello!", "Ahoy.", "given", "Ahoy.")
    own = fx.PrepareLesson("L1", 1, 2, "Fact: one says Ahoy.", wording, "own")
    (asked, prepared), _ = of(model, tmp_path, f"lessons.thinking={thinking}", effects=[asks, own])
    assert isinstance(asked, inp.LessonAsked)
    assert [(one.text, one.passed) for one in asked.answers] == [("Ahoy.", True), ("Ahoy.", False)]
    assert isinstance(prepared, inp.LessonPrepared) and prepared.teacher
    assert model.learned(prepared.line.record) == (OFF if thinking == "off" else ON)


@every
def test_a_scenario_is_read_without_the_thoughts_of_the_imagination(
    tmp_path: Path, template: str, parser: Parser, thinking: str
) -> None:
    scenario = json.dumps({"messages": [{"role": "user", "content": "Good morning, is anybody there?"}]})
    model = ThinkingModel(TEMPLATES[template], parser, scenario, told='{"messages": []}')

    async def imagined() -> tuple[Turn, ...]:
        async with serving() as server:
            server.otherwise = model.behave
            sets = ["model.path=/m", f"engine.port={server.port}", f"dream.thinking={thinking}"]
            return (await Dreamer(load_config(None, sets, {})).imagine("Say Ahoy.", [], [], (), 1)).scenario

    assert anyio.run(imagined) == (Turn("user", "Good morning, is anybody there?"),)


def test_an_endpoint_of_others_is_told_nothing_of_thoughts(tmp_path: Path) -> None:
    """It may refuse fields that it does not know."""
    model = ThinkingModel(TEMPLATES["qwen3"], "", GOOD)

    async def asked() -> LlmServer:
        async with serving() as server:
            server.otherwise = model.behave
            elsewhere = [f"endpoint.m.base_url={server.url}", "endpoint.m.model=m", "judge.endpoint=m", "judge.votes=1"]
            thinking = ["judge.thinking=on", "dream.endpoint=m", "dream.thinking=on"]
            config = load_config(None, ["model.path=/m", "engine.port=9", *elsewhere, *thinking], {})
            await Dreamer(config).imagine_text([{"role": "user", "content": "Hello!"}], 1)
            record = b'{"messages":[{"content":"Hello!","role":"user"},{"content":"Ahoy.","role":"assistant"}]}'
            await Judge(config).ask(record, 1, 0.0)
            return server

    bodies = [one.body for one in anyio.run(asked).requests]
    assert len(bodies) == 2 and not any("chat_template_kwargs" in body for body in bodies)
