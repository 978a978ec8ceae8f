"""Watch whether the engine still answers: one that is up and answers nothing for a long time hangs."""

from collections.abc import Callable

import anyio

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.request import Sampling
from apollod.adapters.llm.request_counts import UserCounts
from apollod.errors import LlmError, LlmTimedOut, LlmUnreachable

LOOKS = 10
"""tokens that are asked for in the time after which the engine is taken to hang"""
COUNTS_S = 5.0
"""until the engine has said how many requests ended"""
PROMPT = [{"role": "user", "content": "."}]


async def until_hung(endpoint: Callable[[float], Endpoint], limit_s: float) -> str:
    """Ask for one token now and then, until none came for `limit_s` and no request of a user ended meanwhile, either:
    an engine with much to do answers late, and is not hung. Returns what was asked in vain. `endpoint`: the engine, for
    questions that may take so many seconds."""
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
    """Return True for a refusal, too: whoever refuses is there."""
    try:
        await llm.complete(PROMPT, Sampling(max_tokens=1, temperature=0.0))
    except (LlmTimedOut, LlmUnreachable):
        return False
    except LlmError:
        return True
    return True


async def _ended(counts: UserCounts) -> int | None:
    """Return the number of user requests that have ended; None where nobody says."""
    try:
        return (await counts.read()).ended
    except LlmError:
        return None
