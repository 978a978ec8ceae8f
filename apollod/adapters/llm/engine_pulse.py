"""Watches whether the engine still answers: a running engine without an answer for a long time hangs."""

from collections.abc import Callable

import anyio

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.request import Sampling
from apollod.adapters.llm.request_counts import UserCounts
from apollod.errors import LlmError, LlmTimedOut, LlmUnreachable

LOOKS = 10
"""number of requests within the time after which the engine counts as hung"""
COUNTS_S = 5.0
"""time limit for reading the number of ended requests"""
PROMPT = [{"role": "user", "content": "."}]


async def until_hung(endpoint: Callable[[float], Endpoint], limit_s: float) -> str:
    """Ask for one token now and then; return a message once none came for `limit_s` and no user request ended
    meanwhile: an engine with much to do answers late, and is not hung. `endpoint`: returns the engine's endpoint with
    this time limit."""
    async with HttpLlm(endpoint(limit_s)) as llm, UserCounts(endpoint(COUNTS_S)) as counts:
        answered_s, ended = anyio.current_time(), await _ended(counts)
        while anyio.current_time() - answered_s < limit_s:
            await anyio.sleep(limit_s / LOOKS)
            if await _answers(llm):
                answered_s, ended = anyio.current_time(), await _ended(counts)
            elif (now := await _ended(counts)) not in (None, ended):
                answered_s, ended = anyio.current_time(), now
    return f"no token and no answer for {limit_s:g} s, the longest that [engine] stall_s allows"


async def _answers(llm: HttpLlm) -> bool:
    """Return True for a refusal, too: it shows that the engine is alive."""
    try:
        await llm.complete(PROMPT, Sampling(max_tokens=1, temperature=0.0))
    except (LlmTimedOut, LlmUnreachable):
        return False
    except LlmError:
        return True
    return True


async def _ended(counts: UserCounts) -> int | None:
    """Return the number of user requests that have ended; None if the engine does not say."""
    try:
        return (await counts.read()).ended
    except LlmError:
        return None
