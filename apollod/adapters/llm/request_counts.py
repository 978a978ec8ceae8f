"""Reads the number of user requests from the /metrics of our engine, where our plugin counts them
(`engine/http/user_requests.py`), and waits for the next one."""

import math
import re
from typing import NamedTuple

import msgspec

from apollod.adapters.llm.connections import Connections
from apollod.adapters.llm.endpoint import Endpoint
from apollod.errors import LlmNonsense
from apollod.wire.request_marks import BEGUN, ENDED, NEXT_USER

WHOLE = "/metrics"
SHORT = f"{WHOLE}/?" + "&".join(f"name[]={name}" for name in (BEGUN, ENDED))
"""only these counters: a tenth of the engine's time for all metrics. With several API processes vLLM returns nothing
here"""

_SAMPLE = re.compile(
    r'^(apollod_[a-z_]+)(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t\r]*$', re.MULTILINE
)
"""name, labels, value, optionally a time. Source: Prometheus' text format 0.0.4"""


class UserRequests(NamedTuple):
    """Counts since the engine's start, over all its API processes."""

    begun: int
    ended: int


class _NextUser(msgspec.Struct, frozen=True):
    came: bool


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
