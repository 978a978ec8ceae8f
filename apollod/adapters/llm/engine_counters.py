"""vLLM's own counters of its requests, from the /metrics of our engine (vllm/v1/metrics/loggers.py, 0.26 to 0.32).

The gauges are set after each step of the engine, before the answers of that step are sent; so a request whose answer
has come is not counted any more. One that is aborted leaves the gauges with the next step, and is never counted as
finished.
"""

import math
import re
from typing import NamedTuple

from apollod.adapters.llm.connections import Connections
from apollod.adapters.llm.endpoint import Endpoint
from apollod.errors import LlmNonsense

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
FINISHED = "vllm:request_success_total"
WHOLE = "/metrics"
SHORT = f"{WHOLE}/?" + "&".join(f"name[]={name}" for name in (RUNNING, WAITING, FINISHED))
"""only these: a tenth of the engine's time for all of them. Where vLLM has several API processes it has nothing here"""

_SAMPLE = re.compile(
    r'^(vllm:[a-z_]+)(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t\r]*$', re.MULTILINE
)
"""name, labels, value, perhaps a time. Source: Prometheus' text format 0.0.4"""


class Counters(NamedTuple):
    """Over all engines and labels."""

    running: int
    waiting: int
    finished: int | None
    """since the engine's start, aborted ones left out; None where it is not counted"""


def read_counters(text: bytes) -> Counters:
    """Raises LlmNonsense where a gauge is missing, or is no number of requests."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text.decode("utf-8", "replace")):
        if name in (RUNNING, WAITING, FINISHED):
            sums[name] = sums.get(name, 0.0) + _number(name, value)
    for name in (RUNNING, WAITING):
        if name not in sums:
            raise LlmNonsense(
                f"{WHOLE} of the engine has no {name}", "take --disable-log-stats out of [engine] args, if it is there"
            )
    finished = sums.get(FINISHED)
    return Counters(int(sums[RUNNING]), int(sums[WAITING]), None if finished is None else int(finished))


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise LlmNonsense(f"{WHOLE} of the engine says that {name} is {text[:40]}", "use a vLLM that is supported")
    return value


class EngineCounters:
    """Asks for them: `async with EngineCounters(endpoint) as counters`. One attempt each, within `endpoint.try_s`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._connections = Connections(endpoint)
        self._path = SHORT

    async def __aenter__(self) -> "EngineCounters":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connections.close()

    async def read(self) -> Counters:
        """As they are now. Raises an LlmError."""
        text = await self._connections.get(self._path)
        if self._path == SHORT and RUNNING.encode() not in text:
            self._path = WHOLE
            text = await self._connections.get(self._path)
        return read_counters(text)
