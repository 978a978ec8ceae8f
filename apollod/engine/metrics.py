"""apollod's figures on the engine's /metrics: one scrape tells serving and learning.

vLLM answers GET /metrics itself; where it keeps the collectors depends on the mode: one registry for ever, or a new one for
each scrape under PROMETHEUS_MULTIPROC_DIR (vllm/v1/metrics/prometheus.py and `expose` of prometheus_fastapi_instrumentator).
How a plugin may replace a route has changed between 0.26 and 0.32 (plugins/endpoint_plugins/interface.py). So neither is
relied on: a middleware appends our text to whatever vLLM answers. Names are prefixed `apollod_`, vLLM's `vllm:`.

The figures are those of `status`, numbers only, since vLLM asks no API key here.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apollod.engine.versions import App, Message, Receive, Scope, Send
from apollod.errors import ApolloError

logger = logging.getLogger("vllm.apollod")

PATH = "/metrics"
FRESH_S = 1.0  # several scrapers, one question
NEGOTIATED = (b"accept", b"accept-encoding")
STATES = ("starting", "serving", "training", "paused", "degraded", "stopping")
CHILDREN = ("engine", "trainer")
UP = "1 when the supervisor answers; when it does not, there is nothing else of apollod's here"
GAUGES = (
    ("step", "step", "Newest step, the version of the weights; a rollback lowers it"),
    ("uptime_seconds", "uptime_s", "Time since the daemon started"),
    ("weights_version_served", "weights.served", "Version of the weights that the engine was told of last and has taken over"),
    ("weights_bytes", "weights.bytes", "Size of the one copy of the weights"),
    ("weights_paused", "weights.paused", "1 while requests wait for a step"),
    ("alignment_mean_difference", "weights.alignment.mean_abs_diff",
     "Mean absolute difference of log-probabilities between engine and trainer, newest comparison"),
    ("alignment_max_difference", "weights.alignment.max_abs_diff", "Largest of those differences"),
    ("alignment_bound", "weights.alignment.bound", "Mean difference above which training halts"),
    ("alignment_step", "weights.alignment.step", "Step at which engine and trainer were compared"),
    ("optimizer_state_bytes", "optimizer.state_bytes", "Size of the optimizer's state"),
    ("checkpoint_step", "checkpoint.step", "Step of the newest checkpoint"),
    ("checkpoint_timestamp_seconds", "checkpoint.at", "Unix time at which the newest checkpoint was committed"),
    ("checkpoint_steps_since", "checkpoint.steps_since", "Steps since then, which a crash would have run again"),
    ("checkpoints", "checkpoint.kept", "Checkpoints that are kept"),
    ("checkpoints_bytes", "checkpoint.bytes", "Size of all checkpoints that are kept"),
    ("journal_seq", "journal.seq", "Number of the newest event"),
    ("journal_bytes", "journal.bytes", "Size of the journal"),
    ("journal_free_bytes", "journal.free_bytes", "Free space on the journal's disk"),
)
"""name, path in `status`, help; a value that is null or not there is not shown"""
EXAMPLES = ("pending", "held", "trained", "skipped", "undone", "rejected", "duplicates")
"""of `queue` in `status`"""


class Figures(Collector):
    """`status` as metrics. `ask` gives the status object or raises ApolloError; it may block, and is called when collected."""

    def __init__(self, ask: Callable[[], Mapping[str, Any]]) -> None:
        self._ask = ask
        self._asking = threading.Lock()
        self._text = b""
        self._until = 0.0

    def text(self) -> bytes:
        """The exposition, no older than FRESH_S; also that nobody answered. Blocks: not for an event loop."""
        with self._asking:
            if time.monotonic() >= self._until:
                self._text = generate_latest(self)
                self._until = time.monotonic() + FRESH_S
            return self._text

    def collect(self) -> Iterable[Metric]:
        """Source: prometheus_client, `Collector`."""
        try:
            return list(_families(self._ask()))
        except ApolloError:
            pass
        except Exception as error:  # noqa: BLE001 - a supervisor of another version, say: vLLM's own figures must not be lost to ours
            logger.warning("apollod: no figures on %s: %s: %s", PATH, type(error).__name__, error)
        return [GaugeMetricFamily("apollod_up", UP, 0)]


class AppendedMetrics:
    """The middleware: GET /metrics is answered by vLLM, then by us. An answer that is no plain exposition stays as it is."""

    def __init__(self, app: App, figures: Figures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Source: the ASGI specification, HTTP connection scope."""
        if scope["type"] != "http" or scope["method"] != "GET" or not _is_metrics(scope):
            await self._app(scope, receive, send)
            return
        ours = await asyncio.to_thread(self._figures.text)
        # What vLLM mounts under /metrics/ would send OpenMetrics, or gzip, to whom asks for it: nothing can be appended to those.
        headers = [(k, v) for k, v in scope["headers"] if k not in NEGOTIATED]
        await self._app({**scope, "headers": headers}, receive, _appending(send, ours))


def _appending(send: Send, ours: bytes) -> Send:
    plain = False

    async def appending(message: Message) -> None:
        nonlocal plain
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            plain = message["status"] == 200 and any(k.lower() == b"content-type" and v.startswith(b"text/plain") for k, v in headers)
            if plain:
                longer = [(k, str(int(v) + len(ours)).encode() if k.lower() == b"content-length" else v) for k, v in headers]
                message = {**message, "headers": longer}
        elif message["type"] == "http.response.body" and plain and not message.get("more_body"):
            message = {**message, "body": message.get("body", b"") + ours}
        await send(message)

    return appending


def _is_metrics(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.rstrip("/") == PATH


def _families(status: Mapping[str, Any]) -> Iterable[Metric]:
    yield GaugeMetricFamily("apollod_up", UP, 1)
    state = GaugeMetricFamily("apollod_state", "1 for the state that the daemon is in, 0 for the others", labels=["state"])
    examples = GaugeMetricFamily("apollod_examples", "Examples by what became of them; a rollback undoes trained ones", labels=["state"])
    ready = GaugeMetricFamily("apollod_child_ready", "1 when the process does its work", labels=["child"])
    restarts = CounterMetricFamily("apollod_child_restarts", "Starts after the first since the daemon started", labels=["child"])
    for each in STATES:
        state.add_metric([each], each == status["state"])
    for each in EXAMPLES:
        examples.add_metric([each], status["queue"][each])
    for child in CHILDREN:
        ready.add_metric([child], status[child]["ready"])
        restarts.add_metric([child], status[child]["restarts"])
    yield from (state, examples, ready, restarts)
    yield CounterMetricFamily("apollod_examples_accepted", "Examples taken into the journal", status["queue"]["accepted"])
    for name, path, help_ in GAUGES:
        value = _at(status, path)
        if value is not None:
            yield GaugeMetricFamily(f"apollod_{name}", help_, value)


def _at(status: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or None where a part of it is null or not there."""
    found: Any = status
    for key in path.split("."):
        found = None if found is None else found.get(key)
    return found
