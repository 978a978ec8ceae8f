"""Watches our engine: is its port free, is it up, does it still answer, and how many requests of users it has had.

The engine's plugin counts those (`engine/http/user_requests.py`) on its /metrics.
"""

import errno
import math
import re
import socket
from collections.abc import Callable
from typing import NamedTuple

import anyio
import msgspec

from apollod.adapters.llm.client import Connections, HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Sampling
from apollod.errors import LlmError, LlmNonsense, LlmTimedOut, LlmUnreachable
from apollod.wire.engine_terms import BEGUN, ENDED, NEXT_USER

HEALTH_TIMEOUT_S = 5.0
LOOKS = 10
"""number of requests within the time after which the engine counts as hung"""
COUNTS_S = 5.0
"""time limit for reading the number of ended requests"""
PROMPT = [{"role": "user", "content": "."}]
WHOLE = "/metrics"
SHORT = f"{WHOLE}/?" + "&".join(f"name[]={name}" for name in (BEGUN, ENDED))
"""only these counters: a tenth of the engine's time for all metrics. With several API processes vLLM returns nothing
here"""

_SAMPLE = re.compile(
    r'^(apollod_[a-z_]+)(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t\r]*$', re.MULTILINE
)
"""name, labels, value, optionally a time. Source: Prometheus' text format 0.0.4"""


def port_in_use(host: str, port: int) -> bool:
    """True if the engine would fail to listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


async def healthy(host: str, port: int) -> bool:
    """GET /health: 200 only once the engine core is up (vLLM entrypoints/serve health route)."""
    try:
        with anyio.fail_after(HEALTH_TIMEOUT_S):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                return (await stream.receive(64)).split(b" ")[1:2] == [b"200"]
    except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
        return False


class UserRequests(NamedTuple):
    """Counts since the engine's start, over all its API processes."""

    begun: int
    ended: int


class _NextUser(msgspec.Struct, frozen=True):
    came: bool


class UserCounts:
    """Fetches the counts: `async with UserCounts(endpoint) as counts`. One attempt each, within `endpoint.try_s`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._connections = Connections(endpoint)
        self._path = SHORT

    async def __aenter__(self) -> "UserCounts":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connections.close()

    async def read(self) -> UserRequests:
        """Return the current counts. Raises an LlmError."""
        text = await self._connections.get(self._path)
        if self._path == SHORT and BEGUN.encode() not in text:
            self._path = WHOLE
            text = await self._connections.get(self._path)
        return read_user_requests(text)

    async def next_user(self, within_s: float) -> bool:
        """Wait until a user's request comes; False if none did within the time. If vLLM has several API processes, only
        one is asked. Raises an LlmError."""
        body = await self._connections.get(f"{NEXT_USER}?within_s={within_s:g}")
        try:
            return msgspec.json.decode(body, type=_NextUser).came
        except msgspec.MsgspecError as error:
            raise LlmNonsense(f"{NEXT_USER} of the engine answered nonsense: {error}") from error


def read_user_requests(text: bytes) -> UserRequests:
    """Parse the counters. Raises LlmNonsense where one is missing, or is not a number of requests."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text.decode("utf-8", "replace")):
        if name in (BEGUN, ENDED):
            sums[name] = sums.get(name, 0.0) + _number(name, value)
    for name in (BEGUN, ENDED):
        if name not in sums:
            raise LlmNonsense(f"{WHOLE} of the engine has no {name}", "use one version of apollod everywhere")
    return UserRequests(int(sums[BEGUN]), int(sums[ENDED]))


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise LlmNonsense(f"{WHOLE} of the engine says that {name} is {text[:40]}", "use a vLLM that is supported")
    return value


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
