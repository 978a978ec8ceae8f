"""Examples, steps and weights: requests to the trainer, which answers each with an input; new weights, published by
orders to the engine's API process; and files of outside trainers' updates, removed when nothing needs them any more."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from apollod.adapters import update_files
from apollod.adapters.journal import blobs, journal_reader
from apollod.adapters.journal.journal_connection import read_again
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.explain import reason
from apollod.supervisor.config import Config
from apollod.supervisor.executor.context import TO_ENGINE, TO_TRAINER, Background, Context, Handler, Inline
from apollod.wire import messages as msg
from apollod.wire.updates import NAME

log = structlog.get_logger()


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


_SESSION = """SELECT body ->> '$.file' FROM events WHERE kind = 'update.received'
    AND seq > coalesce((SELECT max(seq) FROM events WHERE kind IN ('update.committed', 'update.undone')), 0)"""


_CONTINUED = "SELECT 1 FROM events WHERE kind = 'journal.continued' LIMIT 1"


async def _remove(context: Context, effect: fx.RemoveUpdateFiles) -> inp.UpdateFilesGone | None:
    return inp.UpdateFilesGone(effect.step) if await _removed(context.config, effect.files, effect.step) else None


async def _drop(context: Context, effect: fx.DropUpdateFiles) -> None:
    await _removed(context.config, effect.files)


async def _removed(config: Config, files: tuple[str, ...], step: int = -1) -> bool:
    """Remove files that no committed update has, other than `step`: the same bytes are one file."""
    directory = config.state_dir / NAME
    try:
        needed = await read_again(partial(anyio.to_thread.run_sync, _needed, config.journal_path, step))
        await anyio.to_thread.run_sync(update_files.remove, directory, [one for one in files if one not in needed])
    except OSError as error:
        log.warning("update.files_stay", directory=str(directory), error=reason(error))
        return False
    return True


def _needed(journal: Path, but: int = -1) -> frozenset[str]:
    """Files of committed updates, without those of the step `but`."""
    rows = journal_reader.query(journal, update_files.KEPT.format(but=but), 1 << 20).rows
    return frozenset(str(name) for name, _ in rows)


def remove_others(config: Config) -> None:
    """Remove what a daemon that was killed left and no event names. After an archive only half-received files: its
    journal names the others. Blocking. Raises JournalError."""
    directory = config.state_dir / NAME
    if directory.exists() and journal_reader.query(config.journal_path, _CONTINUED).rows:
        update_files.remove_half_received(directory)
    elif directory.exists():
        received = {str(name) for (name,) in journal_reader.query(config.journal_path, _SESSION, 1 << 20).rows}
        update_files.remove_others(directory, _needed(config.journal_path) | received)


HANDLERS: Mapping[type, Handler] = {
    fx.EncodeExamples: Inline(_encode_examples),
    fx.EncodeAnchors: Inline(_encode_anchors),
    fx.RunStep: Inline(_run_step),
    fx.RescoreExamples: Inline(_rescore),
    fx.Restore: TO_TRAINER,
    fx.RefreshEngine: TO_ENGINE,
    fx.PauseEngine: Background(_pause),
    fx.ResumeEngine: TO_ENGINE,
    fx.RemoveUpdateFiles: Background(_remove),
    fx.DropUpdateFiles: Background(_drop),
}
