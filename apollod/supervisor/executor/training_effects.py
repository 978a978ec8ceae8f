"""Examples, steps and weights: requests to the trainer, which answers each with an input; and new weights, published by
orders to the engine's API process."""

from collections.abc import Mapping
from functools import partial

import anyio
import anyio.to_thread

from apollod.adapters.journal import blobs
from apollod.adapters.journal.journal_connection import read_again
from apollod.core import effects as fx
from apollod.supervisor.executor.context import TO_ENGINE, TO_TRAINER, Background, Context, Handler, Inline
from apollod.wire import messages as msg


async def _encode_examples(context: Context, effect: fx.EncodeExamples) -> None:
    records = await context.journal.records_of(effect.examples)
    directories = (str(context.config.base_dir), context.config.settings().model_path)
    found = [(example, records[example]) for example in effect.examples]
    context.children.tell_trainer(msg.Encode(found, directories, effect.untrained))


async def _anchors(context: Context, anchors: tuple[str, ...]) -> list[msg.StepExample]:
    config = context.config
    directories = [config.state_dir / blobs.NAME]
    work = partial(anyio.to_thread.run_sync, blobs.anchors_of, config.journal_path, anchors, directories)
    return await read_again(work) if anchors else []


async def _encode_anchors(context: Context, effect: fx.EncodeAnchors) -> None:
    found = await _anchors(context, effect.anchors)
    context.children.tell_trainer(msg.Encode([(one.example, one.record) for one in found]))


async def _examples(context: Context, effect: fx.RunStep | fx.RescoreExamples) -> list[msg.StepExample]:
    records = await context.journal.records_of(effect.examples)
    return [
        msg.StepExample(example, records[example], digest)
        for example, digest in zip(effect.examples, effect.digests, strict=True)
    ]


async def _run_step(context: Context, effect: fx.RunStep) -> None:
    examples = await _examples(context, effect)
    step = msg.Step(
        effect.step, examples, effect.lr, await _anchors(context, effect.held), effect.replay, effect.products,
        **effect.terms(),
    )  # fmt: skip
    context.children.tell_trainer(step)


async def _rescore(context: Context, effect: fx.RescoreExamples) -> None:
    context.children.tell_trainer(msg.Rescore(effect.number, await _examples(context, effect)))


async def _pause(context: Context, effect: fx.PauseEngine) -> None:
    """Give the order after its wait; the engine's answer is an input of its own."""
    if effect.wait_s:
        await anyio.sleep(effect.wait_s)
    context.children.order_engine(effect)


HANDLERS: Mapping[type, Handler] = {
    fx.EncodeExamples: Inline(_encode_examples),
    fx.EncodeAnchors: Inline(_encode_anchors),
    fx.RunStep: Inline(_run_step),
    fx.RescoreExamples: Inline(_rescore),
    fx.Restore: TO_TRAINER,
    fx.RefreshEngine: TO_ENGINE,
    fx.PauseEngine: Background(_pause),
    fx.ResumeEngine: TO_ENGINE,
}
"""Effect type -> its handler."""
