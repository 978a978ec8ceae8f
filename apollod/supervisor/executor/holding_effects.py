"""Freezes anchors: the served model's answer to a prompt, and its log-probabilities of each token of it."""

import time
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from http.client import NOT_FOUND, NOT_IMPLEMENTED
from importlib.resources import files
from typing import Literal

import anyio.to_thread
import msgspec

from apollod.adapters.journal import blobs
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.log_probabilities import teacher_of
from apollod.adapters.llm.openai_api import Sampling
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.holding import Sort
from apollod.core.rules.holding.policy import AT_ONCE
from apollod.curation.lessons.line_lessons import Pair, asked_by
from apollod.curation.redaction import redact_text
from apollod.curation.stripping import as_asked
from apollod.curation.surrounding_texts import conversation_in
from apollod.errors import LlmError, LlmNonsense, LlmRefused, RecordRefused
from apollod.supervisor.captures import pair_of
from apollod.supervisor.child_commands import priority_at
from apollod.supervisor.executor.context import Background, Context, Handler, failure_of, own_endpoint
from apollod.wire.records import record_of
from apollod.wire.teacher import write_teacher

ANSWER_TOKENS = 40
"""most tokens of an anchor's answer; longer ones are cut, which does not affect the distributions"""
ANSWER_CHARACTERS = 4 * ANSWER_TOKENS
"""the same for an approved answer, which is cut as text; in most languages a token has fewer characters"""
LIMIT_S = 20.0  # time limit of one question: steps may wait for the answer
PRIORITY = 5  # at our own engine: after users, before requests that no step waits for


class ShippedPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of `data/anchors.jsonl`."""

    sort: Sort
    prompt: str


@cache
def shipped_prompts() -> tuple[ShippedPrompt, ...]:
    """Shipped prompts in the order of the file, in which they are frozen."""
    lines = (files("apollod") / "data" / "anchors.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=ShippedPrompt) for line in lines)


async def _freeze(context: Context, effect: fx.FreezeAnchor) -> inp.AnchorAnswered | inp.AnchorCallFailed:
    """Freeze an anchor; every failure is an input as well."""
    try:
        return await _frozen(context, effect)
    except Exception as error:  # noqa: BLE001 - after a bug of ours this one is left out, and status says so
        return inp.AnchorCallFailed(effect.wanted, _cause(error), failure_of(error).reason)


def _cause(error: Exception) -> Literal["unable", "busy", "answer"]:
    match error:
        case LlmRefused(status=status) if status in (NOT_IMPLEMENTED, NOT_FOUND):
            return "unable"
        case LlmError(retryable=True) | OSError():
            return "busy"
    return "answer"


async def _frozen(context: Context, effect: fx.FreezeAnchor) -> inp.AnchorAnswered:
    began = time.monotonic()
    sort, prompt, answer = await _asked(context, effect)
    around, first = effect.around, -1
    said = [as_asked(one) for one in conversation_in(around, effect.told or effect.system, prompt)]
    priority = priority_at(context.config, PRIORITY)
    async with HttpLlm(own_endpoint(context.config, LIMIT_S)) as llm:
        if not answer:
            sampling = Sampling(max_tokens=ANSWER_TOKENS, temperature=0.0, priority=priority, thinking="off")
            completion = await llm.complete(said, sampling)
            answer = completion.choices[0].text
            first = completion.versions.first if completion.versions is not None else -1
        if not answer.strip():
            raise LlmNonsense("the model says nothing to this")
        if any(redact_text(text) != text for text in (answer, *(turn.content for turn in prompt))):
            raise RecordRefused("the answer or its prompt holds what looks like a secret")
        teacher = await teacher_of(llm, said, answer, tools=around.tools, priority=priority)
    held = [*conversation_in(around, effect.system, prompt, answer)]
    record = record_of({"messages": held} | ({"tools": list(around.tools)} if around.tools else {})).canonical
    directory = context.config.state_dir / blobs.NAME
    digest = await anyio.to_thread.run_sync(blobs.keep, directory, write_teacher(teacher))
    return inp.AnchorAnswered(
        effect.wanted, anchor_id(record, digest), msgspec.Raw(record), digest, sort,
        first if first >= 0 else teacher.version, teacher.version, time.monotonic() - began,
        asked_by(prompt[0].content) if len(prompt) == 1 else "",
    )  # fmt: skip


async def _asked(context: Context, effect: fx.FreezeAnchor) -> tuple[Sort, tuple[Turn, ...], str]:
    """Sort, prompt and answer of an anchor; an empty answer: the model is asked for it."""
    if effect.example:
        question, answer = await _approved(context, effect.example)
        return effect.sort, (Turn("user", question),), answer
    if effect.prompt:
        return effect.sort, effect.prompt, effect.answer
    prompts, number = shipped_prompts(), int(effect.wanted.partition(":")[2])
    if number > len(prompts):
        raise RecordRefused(f"there is no prompt {number} in data/anchors.jsonl", "install apollod anew")
    shipped = prompts[number - 1]
    return shipped.sort, (Turn("user", shipped.prompt),), ""


async def _approved(context: Context, example: str) -> Pair:
    """The question of an example and the beginning of its answer, which the served model gave."""
    found = await context.journal.accepted_of([example])
    if example not in found:
        raise RecordRefused("its example is not in this journal")
    pair = await anyio.to_thread.run_sync(pair_of, context.config, bytes(found[example].record))
    if pair is None:
        raise RecordRefused("its example is no question with one answer")
    return pair._replace(answer=_beginning(pair.answer))


def _beginning(answer: str) -> str:
    """The beginning of a long answer that fits an anchor, up to the end of a word."""
    if len(answer) <= ANSWER_CHARACTERS:
        return answer
    begin = answer[:ANSWER_CHARACTERS]
    return begin.rpartition(" ")[0] or begin


def anchor_id(record: bytes, teacher: str) -> str:
    """Id of an anchor, see `AnchorFrozen`."""
    return blake2b(record + teacher.encode(), digest_size=16).hexdigest()


HANDLERS: Mapping[type, Handler] = {fx.FreezeAnchor: Background(_freeze, limit=AT_ONCE)}
