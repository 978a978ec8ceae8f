"""Calls for dreams. Each has one input as its answer, unless it is cancelled."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio.to_thread

from apollod.adapters.journal import blobs
from apollod.adapters.seed_places import read_seeds
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.events import Mode
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.judging.events import JUDGE
from apollod.core.kernel.reasons import one_line
from apollod.core.proof import NUCLEUS
from apollod.curation.dreaming.cheats import echo, hint, leak
from apollod.curation.dreaming.imagination import PROMPT_HASH, SITUATION_HASH
from apollod.curation.dreaming.scenario_text import sketch_of, text_of
from apollod.curation.dreaming.seeds import Seed, choose
from apollod.curation.surrounding_texts import conversation_in
from apollod.errors import ApolloError
from apollod.supervisor.dreaming.dreamer import ANSWER_TEMPERATURE, Dreamer
from apollod.supervisor.dreaming.tested_answers import Tester
from apollod.supervisor.executor.context import Context, Failure, Handler, Inline, UnderWay, asking, given_line
from apollod.wire.records import record_of
from apollod.wire.teacher import write_teacher

Call = fx.ImagineScenario | fx.AnswerScenario | fx.JudgeDream | fx.TestScenario


def _dreamer(context: Context) -> Dreamer:
    assert context.dreamer is not None
    return context.dreamer


def _tester(context: Context) -> Tester:
    return Tester(context.config, context.judge)


async def _imagine(context: Context, effect: fx.ImagineScenario) -> inp.ScenarioImagined:
    pattern, began, dreamer = effect.pattern, time.monotonic(), _dreamer(context)
    turn = effect.number * 100 + effect.attempt
    chosen: tuple[Seed, ...] = ()
    if pattern.seeds:
        seeds = await anyio.to_thread.run_sync(read_seeds, pattern.seeds, context.config.journal_path)
        chosen = choose(seeds.found, turn, pattern.name, effect.last_seeds, effect.surfaced)
    texts = [seed.text for seed in chosen]
    wrong = effect.purpose == "situation"
    imagined = await dreamer.imagine(pattern.instruction, texts, effect.unlike, effect.variation_of, turn, wrong)
    scenario = imagined.scenario
    sketch = await anyio.to_thread.run_sync(sketch_of, text_of(scenario))
    leaked = await anyio.to_thread.run_sync(_given_away, pattern.instruction, scenario)
    echoed = await anyio.to_thread.run_sync(echo, texts, scenario)
    assert context.surrounder is not None
    placed, left_out = await context.surrounder.placed(effect, scenario)
    found = ev.DreamImagined(
        effect.dream, scenario, sketch, tuple(seed.id for seed in chosen), tuple(seed.place for seed in chosen),
        dreamer.model, SITUATION_HASH if wrong else PROMPT_HASH, imagined.tokens, time.monotonic() - began,
        placed, one_line(left_out),
    )  # fmt: skip
    return inp.ScenarioImagined(found, leaked, echoed)


def _given_away(instruction: str, scenario: tuple[Turn, ...]) -> str:
    return leak(instruction, scenario) or hint(instruction, scenario)


async def _answer(context: Context, effect: fx.AnswerScenario) -> inp.DreamAnswered:
    began = time.monotonic()
    said = await _dreamer(context).answer(effect.told, effect.scenario, ANSWER_TEMPERATURE, effect.surrounding)
    sketch = await anyio.to_thread.run_sync(sketch_of, said.text)
    return inp.DreamAnswered(
        effect.dream, effect.told, said.text, sketch, said.logprob, said.weights_version, said.tokens,
        time.monotonic() - began,
    )  # fmt: skip


async def _judge(context: Context, effect: fx.JudgeDream) -> inp.DreamVerdict:
    """Judge an answer, and build the conversation to learn from a good one: a bare one without the text by which it was
    judged, one in contrast with it, and both without other told text. If the model thinks, the answer is placed after a
    new thought in that conversation, since the original thought mentions the told text."""
    began = time.monotonic()
    found = await _tester(context).found(
        effect.pattern.check, effect.mode, effect.expected, effect.scenario, effect.answer, effect.surrounding
    )
    if found.verdict == "bad" and found.by != JUDGE and effect.stage == "judging":
        found = found._replace(better=await _written(context, effect))
    line, thought = None, ""
    if found.verdict == "good":
        told, around = "" if effect.mode == "bare" else effect.expected, effect.surrounding
        dreamer, thinking = _dreamer(context), context.config.dream.thinking
        said = await dreamer.thought(told, effect.scenario, thinking, around)
        found, thought = found._replace(tokens=found.tokens + said.tokens), said.thought
        learned = conversation_in(around, told, effect.scenario, effect.answer, thought)
        record = record_of({"messages": learned, "tools": list(around.tools)})
        line = await given_line(context, record.canonical, f"dream:{effect.dream}")
    teacher = await _teacher(context, effect, thought) if line is not None and line.example else ""
    judged = ev.DreamJudged(
        effect.dream, found.verdict, found.by, one_line(found.reason), one_line(found.quote), better=found.better,
        votes=found.votes, tokens=found.tokens, seconds=time.monotonic() - began,
    )  # fmt: skip
    return inp.DreamVerdict(judged, effect.stage, line, teacher=teacher)


async def _teacher(context: Context, effect: fx.JudgeDream, thought: str) -> str:
    """Digest of the told model's distribution over its own answer, if that is the target; empty: its tokens are the
    target. A better answer is not the model's own, and in contrast nothing is stripped (docs/decisions/0020)."""
    if effect.pattern.objective != "context" or effect.mode != "bare" or effect.stage != "judging":
        return ""
    teacher = await _dreamer(context).teacher(effect.told, effect.scenario, effect.answer, effect.surrounding, thought)
    return await anyio.to_thread.run_sync(blobs.keep, context.config.state_dir / blobs.NAME, write_teacher(teacher))


async def _test(context: Context, effect: fx.TestScenario) -> inp.DreamTested:
    """Test the most likely answer, or one sampled as for lessons; also one that is cut off, since a behaviour shows in
    a long answer before its end."""
    began = time.monotonic()
    temperature, top_p = (1.0, NUCLEUS) if effect.sample else (0.0, None)
    said = await _dreamer(context).answer(
        effect.told, effect.scenario, temperature, effect.surrounding, top_p, whole=False
    )
    found = await _tester(context).tested(
        effect.pattern.check, effect.mode, effect.expected, effect.scenario, said.text, effect.surrounding, said.cut
    )
    return inp.DreamTested(
        effect.dream, effect.pattern.name, effect.mode, found.verdict == "good", said.text, found.by, effect.round,
        effect.contrast, one_line(found.reason), said.logprob, said.weights_version, said.tokens + found.tokens,
        time.monotonic() - began, effect.surrounding.kind, effect.sample,
    )  # fmt: skip


async def _written(context: Context, effect: fx.JudgeDream) -> str | None:
    """A better answer written by the judge after a failed check, which it has to pass in turn. None: it wrote none, or
    cannot be asked."""
    try:
        tester = _tester(context)
        return (await tester.judged(effect.expected, effect.scenario, effect.answer, effect.surrounding)).better
    except (ApolloError, OSError):
        return None


def dreaming(under_way: UnderWay) -> bool:
    """True if a call for a dream is under way."""
    return any(under_way.count(call.__name__) for call in CALLS)


async def _cancel(context: Context, effect: fx.CancelDream) -> None:
    for call in CALLS:
        context.under_way.cancel_group(call.__name__)


def _failed(effect: Call, failure: Failure) -> inp.DreamCallFailed:
    case: tuple[Mode, int] = ("bare", 0)
    match effect:
        case fx.ImagineScenario():
            stage = "imagining"
        case fx.AnswerScenario():
            stage = "answering"
        case fx.JudgeDream():
            stage = effect.stage
        case fx.TestScenario():
            stage, case = f"round {effect.round}" if effect.round else "testing", (effect.mode, effect.sample)
    return inp.DreamCallFailed(effect.dream, stage, effect.attempt, *failure, case=case)


CALLS: Mapping[type[Call], Callable[[Context, Any], Awaitable[inp.Input]]] = {
    fx.ImagineScenario: _imagine, fx.AnswerScenario: _answer, fx.JudgeDream: _judge, fx.TestScenario: _test,
}  # fmt: skip
"""The number of calls is limited by the core alone: the next one begins while the one before, whose answer caused it,
is still under way."""
HANDLERS: Mapping[type, Handler] = {
    **{call: asking(work, _failed, "dream.call_broke", "dream", "attempt") for call, work in CALLS.items()},
    fx.CancelDream: Inline(_cancel),
}
