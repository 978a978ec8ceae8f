"""Asks the engine for a told model's log-probabilities of each token of an answer, to be kept as a teacher.

The tokens of the answer have to be those that the trainer learns from the bare conversation (it compares them), so they
follow its rules: the engine's own template and tokenizer make the text, no token spans the end of the prompt, an empty
thought belongs to the prompt, and the last token is the one that ends the turn.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.llm.client import Llm
from apollod.adapters.llm.divergence import BEGINNING_MAX, answer_range, common
from apollod.core.settings import Thinking
from apollod.curation.contexts import as_asked
from apollod.curation.surrounding_texts import answered
from apollod.errors import LlmNonsense
from apollod.wire.teacher import Teacher
from apollod.wire.thoughts import CLOSED, NO_THOUGHT, opens_thought, past_thought

LIKELIEST = 16  # at each position; vLLM gives 20 at most unless it is started with --max-logprobs


async def teacher_of(
    llm: Llm, told: Sequence[Mapping[str, Any]], answer: str, k: int = LIKELIEST,
    tools: Sequence[Mapping[str, Any]] = (), priority: int | None = None, thought: str = "",
) -> Teacher:  # fmt: skip
    """Return the `k` likeliest tokens at each position of `answer`, which follows the messages `told` and `thought`, if
    any.

    Raises an LlmError; ScoreRefused if the answer cannot be located in the text of the chat template.
    """
    thinking: Thinking = "on" if thought else "off"
    prompt = await llm.tokenise(told, tools, thinking=thinking)
    said = as_asked(answered(answer, thought))
    whole = await llm.tokenise([*told, said], tools, answer=False, thinking=thinking)
    start, end = answer_range(prompt, whole)
    ids = whole.tokens[:end]
    tags = prompt.opens_thought or CLOSED in whole.token_strs[start : start + BEGINNING_MAX]
    if thought or tags or start < len(prompt.tokens):
        ids, start = await _apart(llm, prompt.tokens, ids, start, thought)
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


async def _apart(
    llm: Llm, prompt: tuple[int, ...], whole: tuple[int, ...], start: int, thought: str
) -> tuple[tuple[int, ...], int]:
    """Return token ids, and the index of the answer's first token. No token spans the end of the prompt (as `<think>`
    and a new line, of which the template makes two if the answer has no thought), and the thought is before the answer,
    not in it."""
    before, text = await llm.text_of(prompt), await llm.text_of(whole)
    at = common(before, text)
    head, rest = text[:at], text[at:]
    if opens_thought(before) and CLOSED not in rest:
        head, rest = before, thought + NO_THOUGHT + rest
    head, rest = past_thought(head, rest, thought)
    if head == text[:at] == await llm.text_of(whole[:start]):
        return whole, start
    first, last = await llm.tokenise(head), await llm.tokenise(rest)
    return first.tokens + last.tokens, len(first.tokens)
