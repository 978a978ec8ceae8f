"""What a model that is told thinks of each token of an answer: asked once of the engine, and then kept.

The tokens of the answer have to be those that the trainer learns of the bare conversation (it compares them), so they
are made by its rules: the engine's own template and tokenizer make the text, none of its tokens reaches over the end of
the prompt, and the last one is that which ends the turn.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.llm.client import Llm
from apollod.adapters.llm.divergence import answer_range, common
from apollod.errors import LlmNonsense
from apollod.wire.teacher import Teacher

LIKELIEST = 16  # in each place; vLLM gives 20 at most unless it is started with --max-logprobs


async def teacher_of(
    llm: Llm, told: Sequence[Mapping[str, Any]], answer: str, k: int = LIKELIEST,
    tools: Sequence[Mapping[str, Any]] = (), priority: int | None = None,
) -> Teacher:  # fmt: skip
    """The `k` likeliest tokens in each place of `answer`, which follows the messages `told`.

    Raises an LlmError; ScoreRefused for an answer that the chat template does not let be found again.
    """
    prompt = await llm.tokenise(told, tools)
    whole = await llm.tokenise([*told, {"role": "assistant", "content": answer}], tools, answer=False)
    start, end = answer_range(prompt, whole)
    ids = whole.tokens[:end]
    if start < len(prompt.tokens):
        ids, start = await _apart(llm, prompt.tokens, ids, start)
    scores = await llm.score(ids, k, priority)
    likeliest, logprobs = array("I"), array("f")
    for place in scores.top[start - 1 :]:
        if len(place) < k:
            raise LlmNonsense(f"the {k} likeliest tokens were asked for and {len(place)} came")
        for token, logprob in sorted(place.items(), key=lambda one: (-one[1], one[0]))[:k]:
            likeliest.append(token)
            logprobs.append(logprob)
    version = scores.versions.last if scores.versions is not None else -1
    return Teacher(array("I", ids[start:]), likeliest, logprobs, k, version)


async def _apart(llm: Llm, prompt: tuple[int, ...], whole: tuple[int, ...], start: int) -> tuple[tuple[int, ...], int]:
    """ids without a token that reaches over the end of the prompt, as in `<think>` and a new line, of which the
    template makes two where the answer has no thoughts; and the first one of the answer."""
    before, text = await llm.text_of(prompt), await llm.text_of(whole)
    at = common(before, text)
    if await llm.text_of(whole[:start]) == text[:at]:
        return whole, start
    head, rest = await llm.tokenise(text[:at]), await llm.tokenise(text[at:])
    return head.tokens + rest.tokens, len(head.tokens)
