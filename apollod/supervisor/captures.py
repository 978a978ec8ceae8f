"""Uses the engine's captured answers: logs that name a response are learned token by token (`[capture] mode = "all"`),
and a rating finds its answer."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import anyio
import msgspec

from apollod.adapters import answer_store
from apollod.adapters.answer_store import SECOND_NS, Answer
from apollod.adapters.system import clock
from apollod.core.facts.intake.state import Position
from apollod.core.inputs import Batch
from apollod.curation.lessons.line_lessons import Pair, pair_in
from apollod.curation.responses import Captured, joined, question_in
from apollod.model.config_facts import template_text
from apollod.supervisor.config import Config
from apollod.wire.comparisons import is_compared
from apollod.wire.records import CompletionRecord, decode_record
from apollod.wire.thoughts import opens_thought, split
from apollod.wire.updates import is_update

LOOK_S = 60.0
"""longest time between two searches for expired answers: the clock may be set meanwhile"""
LOOK_MIN_S = 0.1

ReadBatch = Callable[[str, Mapping[str, Position]], Batch | None]


def kept(config: Config, response: str) -> list[Answer]:
    """The choices of a response that are still kept. Blocking."""
    since = clock.now_ns() - int(config.capture.keep_s * SECOND_NS)
    return answer_store.find(config.capture_path, response, since)


def name_of(answer: Answer) -> str:
    """The name of an answer, as records of learned answers use it."""
    return f"{answer.response}#{answer.choice}" if answer.choice else answer.response


def question_of(config: Config, prompt: str) -> str:
    """The question of a prompt that the engine rendered, see `question_in`. Blocking."""
    return question_in(prompt, template_text(Path(config.model.path).expanduser()))


def pair_of(config: Config, record: bytes) -> Pair | None:
    """The question of a canonical record and its answer without thoughts, see `pair_in`; also of a rated answer, with
    the prompt rendered by the engine; None for answers that are compared. Blocking."""
    if is_compared(record) or is_update(record):
        return None
    typed, opened = decode_record(record), False
    if isinstance(typed, CompletionRecord):
        question, opened = question_of(config, typed.prompt), opens_thought(typed.prompt)
        pair = Pair(question, typed.completion) if question else None
    else:
        pair = pair_in(record)
    return None if pair is None else pair._replace(answer=split(pair.answer, opened=opened).answer.strip())


def forget_if_off(config: Config) -> None:
    """Remove all captured answers if capture is off. Raises OSError."""
    if config.capture.mode == "off":
        answer_store.remove(config.capture_path)


async def forget_in_time(config: Config) -> None:
    """Drop answers when they get too old, with or without a running engine. Never ends."""
    kept = config.capture
    while kept.mode != "off":
        now = clock.now_ns()
        due = await anyio.to_thread.run_sync(answer_store.tidy, config.capture_path, kept.max_bytes, kept.keep_s, now)
        left_s = LOOK_S if due is None else (due - now) / SECOND_NS
        await anyio.sleep(min(max(left_s, LOOK_MIN_S), LOOK_S))


def joining(config: Config, read_batch: ReadBatch) -> ReadBatch:
    """Extend `read_batch` by the engine's tokens of the answers in the batch."""
    if config.capture.mode != "all":
        return read_batch

    def read(path: str, positions: Mapping[str, Position]) -> Batch | None:
        batch = read_batch(path, positions)
        return None if batch is None else with_captured(config, batch)

    return read


def with_captured(config: Config, batch: Batch) -> Batch:
    """The batch with the engine's tokens of those answers that are captured. Blocking."""
    if not any(line.origin.responses for line in batch.lines):
        return batch

    @cache
    def captured(response: str) -> list[Captured]:
        return [
            Captured(name_of(one), tuple(one.prompt_ids), tuple(one.answer_ids), one.answer)
            for one in kept(config, response)
        ]

    most = config.trainer.max_tokens
    return msgspec.structs.replace(batch, lines=tuple(joined(line, captured, most) for line in batch.lines))
