"""Calls for dreams. Each is answered by one input, unless it is cancelled."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import anyio.to_thread

from apollod.adapters.dreams.seed_places import read_seeds
from apollod.adapters.journal import blobs
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.judging.votes import JUDGE
from apollod.curation.dreaming.cheats import echo, leak
from apollod.curation.dreaming.imagination import PROMPT_HASH
from apollod.curation.dreaming.seeds import Seed, choose
from apollod.curation.dreaming.sketching import sketch_of, text_of
from apollod.errors import ApolloError, DreamCut
from apollod.supervisor.dreaming.dreamer import Answered, Dreamer, conversation
from apollod.supervisor.dreaming.tested_answers import Tester
from apollod.supervisor.executor.context import Background, Context, Handler, Inline
from apollod.supervisor.executor.failing import Failure, answered
from apollod.supervisor.executor.given import given_line
from apollod.supervisor.executor.under_way import UnderWay
from apollod.wire.records import record_of
from apollod.wire.teacher import write_teacher

CallT = TypeVar("CallT", fx.ImagineScenario, fx.AnswerScenario, fx.JudgeDream, fx.TestScenario)
CALLS = (fx.ImagineScenario, fx.AnswerScenario, fx.JudgeDream, fx.TestScenario)


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
        chosen = choose(seeds.found, turn, pattern.name, effect.last_seeds)
    texts = [seed.text for seed in chosen]
    imagined = await dreamer.imagine(pattern.instruction, texts, effect.unlike, effect.variation_of, turn)
    scenario = imagined.scenario
    sketch = await anyio.to_thread.run_sync(sketch_of, text_of(scenario))
    leaked = await anyio.to_thread.run_sync(leak, pattern.instruction, scenario)
    echoed = await anyio.to_thread.run_sync(echo, texts, scenario)
    return inp.ScenarioImagined(
        effect.dream, scenario, sketch, tuple(seed.id for seed in chosen),
        tuple(seed.place for seed in chosen), leaked, echoed,
        dreamer.model, PROMPT_HASH, imagined.tokens, time.monotonic() - began,
    )  # fmt: skip


async def _answer(context: Context, effect: fx.AnswerScenario) -> inp.ScenarioAnswered:
    began, temperature = time.monotonic(), context.config.dream.answer_temperature
    said = await _dreamer(context).answer(
        effect.told, effect.scenario, temperature, int(effect.dream[1:]) * 100 + effect.attempt
    )
    sketch = await anyio.to_thread.run_sync(sketch_of, said.text)
    return inp.ScenarioAnswered(
        effect.dream, said.text, sketch, said.logprob, said.weights_version, said.tokens,
        time.monotonic() - began,
    )  # fmt: skip


async def _judge(context: Context, effect: fx.JudgeDream) -> inp.DreamVerdict:
    """What is called good is learned as a conversation: bare without what it was judged by, in contrast with it."""
    began = time.monotonic()
    found = await _tester(context).found(
        effect.pattern.check, effect.mode, effect.expected, effect.scenario, effect.answer
    )
    if found.verdict == "bad" and found.by != JUDGE and effect.stage == "judging":
        found = found._replace(better=await _written(context, effect))
    line = None
    if found.verdict == "good":
        learned = conversation("" if effect.mode == "bare" else effect.expected, effect.scenario, effect.answer)
        # only the last answer is: what the imagination let an assistant say before is the situation
        before = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in learned[:-1]]
        record = record_of({"messages": [*before, learned[-1]]})
        line = await given_line(context, record.canonical, f"dream:{effect.dream}")
    teacher = await _teacher(context, effect) if line is not None and line.example else ""
    return inp.DreamVerdict(
        effect.dream, effect.stage, found.verdict, found.by, found.reason, found.quote, found.better, line, False,
        found.votes, found.tokens, time.monotonic() - began, teacher,
    )  # fmt: skip


async def _teacher(context: Context, effect: fx.JudgeDream) -> str:
    """Digest of what the told model thinks of its own answer, where that is what is learned; empty: its tokens are. A
    better answer is not the model's, and in contrast nothing is stripped (docs/decisions/0020)."""
    if effect.pattern.objective != "context" or effect.mode != "bare" or effect.stage != "judging":
        return ""
    teacher = await _dreamer(context).teacher(effect.expected, effect.scenario, effect.answer)
    return await anyio.to_thread.run_sync(blobs.keep, context.config.state_dir / blobs.NAME, write_teacher(teacher))


async def _test(context: Context, effect: fx.TestScenario) -> inp.ScenarioTested:
    """The most likely answer, judged as any other."""
    began = time.monotonic()
    try:
        said = await _dreamer(context).answer(effect.told, effect.scenario, 0.0, 0)
    except DreamCut:
        said = Answered("", None, None, _dreamer(context).answer_tokens)
    found = await _tester(context).tested(
        effect.pattern.check, effect.mode, effect.expected, effect.scenario, said.text
    )
    return inp.ScenarioTested(
        effect.dream, effect.round, effect.mode, effect.contrast, found.verdict == "good", said.text, found.by,
        found.reason, said.logprob, said.weights_version, said.tokens + found.tokens, time.monotonic() - began,
    )  # fmt: skip


async def _written(context: Context, effect: fx.JudgeDream) -> str | None:
    """The better answer that the judge writes where a check said no; the check will have to agree. None: it wrote none,
    or cannot be asked."""
    try:
        return (await _tester(context).judged(effect.expected, effect.scenario, effect.answer)).better
    except (ApolloError, OSError):
        return None


def dreaming(under_way: UnderWay) -> bool:
    """Is a call for a dream under way?"""
    return any(under_way.count(call.__name__) for call in CALLS)


async def _cancel(context: Context, effect: fx.CancelDream) -> None:
    for call in CALLS:
        context.under_way.cancel_group(call.__name__)


def _call(work: Callable[[Context, CallT], Awaitable[inp.Input]], stage: Callable[[CallT], str]) -> Background[CallT]:
    """Whatever goes wrong is an input, too. There is no limit to their number: the core asks for one at a time, and the
    next one begins while its predecessor, whose answer it follows from, is still under way."""

    async def run(context: Context, effect: CallT) -> inp.Input:
        def failed(failure: Failure) -> inp.DreamCallFailed:
            cause, why, retry_after_s = failure
            return inp.DreamCallFailed(effect.dream, stage(effect), effect.attempt, cause, why, retry_after_s)

        about = {"dream": effect.dream, "stage": stage(effect)}
        return await answered(work(context, effect), failed, "dream.call_broke", **about)

    return Background(run)


def _of_test(effect: fx.TestScenario) -> str:
    return f"round {effect.round}" if effect.round else "testing"


HANDLERS: Mapping[type, Handler] = {
    fx.ImagineScenario: _call(_imagine, lambda effect: "imagining"),
    fx.AnswerScenario: _call(_answer, lambda effect: "answering"),
    fx.JudgeDream: _call(_judge, lambda effect: effect.stage),
    fx.TestScenario: _call(_test, _of_test),
    fx.CancelDream: Inline(_cancel),
}
"""From an effect to the coroutine that carries it out."""
