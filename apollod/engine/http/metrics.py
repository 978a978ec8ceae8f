"""apollod's figures on the engine's /metrics: one scrape shows serving and learning.

vLLM answers GET /metrics itself; the place of its collectors depends on the mode: one permanent registry, or a new one
for each scrape under PROMETHEUS_MULTIPROC_DIR (vllm/v1/metrics/prometheus.py and `expose` of
prometheus_fastapi_instrumentator). The way for a plugin to replace a route has changed between 0.26 and 0.32
(plugins/endpoint_plugins/interface.py). So a middleware relies on neither and appends our text to vLLM's answer. Names
are prefixed `apollod_`, vLLM's `vllm:`.

The figures are those of `status`, numbers only, since vLLM requires no API key here.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import UNSET, UnsetType
from prometheus_client import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apollod.core.rules.alignment import Alignment
from apollod.core.rules.daemon import STATES
from apollod.core.rules.environments import EnvironmentStatus
from apollod.core.rules.quality.status import QualityMetric
from apollod.engine.http.request_body import App, Message, Receive, Scope, Send
from apollod.errors import DaemonUnreachable, LinkClosed
from apollod.explain import line_of
from apollod.wire.engine_terms import BEGUN, ENDED, NEXT_USER
from apollod.wire.status import Status

logger = logging.getLogger("vllm.apollod")

PATH = "/metrics"
FRESH_S = 1.0  # several scrapers share one status request
NEGOTIATED = (b"accept", b"accept-encoding")
NAMES = "name[]"
"""parameter of a scrape for selected metrics (prometheus_client)"""
OURS = "apollod_"
UP = "1 when the supervisor answers; when it does not, there is nothing else of apollod's here"
EXAMPLES = ("pending", "held", "trained", "skipped", "undone", "withdrawn", "declined", "edited", "expired", "rejected",
            "duplicates")  # fmt: skip
"""counts of `Status.queue`"""


class Gauge(NamedTuple):
    """A figure of the status. `value`: UNSET or None if the status lacks it; then it is not shown."""

    name: str
    value: Callable[[Status], float | UnsetType | None]
    help: str


def _aligned(value: Callable[[Alignment], float]) -> Callable[[Status], float | None]:
    """A figure of the newest comparison, if there was one."""
    return lambda s: None if s.weights.alignment is None else value(s.weights.alignment)


GAUGES = (
    Gauge("step", lambda s: s.step, "Newest step, the version of the weights; a rollback lowers it"),
    Gauge("uptime_seconds", lambda s: s.uptime_s, "Time since the daemon started"),
    Gauge(
        "weights_version_served",
        lambda s: s.weights.served,
        "Version of the weights that the engine was told of last and has taken over",
    ),
    Gauge("weights_bytes", lambda s: s.weights.bytes, "Size of the one copy of the weights"),
    Gauge("weights_paused", lambda s: s.weights.paused, "1 while requests wait for a step"),
    Gauge(
        "alignment_mean_difference",
        _aligned(lambda a: a.mean_abs_diff),
        "Mean absolute difference of log-probabilities between engine and trainer, newest comparison",
    ),
    Gauge("alignment_max_difference", _aligned(lambda a: a.max_abs_diff), "Largest of those differences"),
    Gauge("alignment_bound", _aligned(lambda a: a.bound), "Mean difference above which training halts"),
    Gauge("alignment_step", _aligned(lambda a: a.step), "Step at which engine and trainer were compared"),
    Gauge("optimizer_state_bytes", lambda s: s.optimizer.state_bytes, "Size of the optimizer's state"),
    Gauge("checkpoint_step", lambda s: s.checkpoint.step, "Step of the newest checkpoint"),
    Gauge(
        "checkpoint_timestamp_seconds",
        lambda s: s.checkpoint.at,
        "Unix time at which the newest checkpoint was committed",
    ),
    Gauge(
        "checkpoint_steps_since",
        lambda s: s.checkpoint.steps_since,
        "Steps since then, which a crash would have run again",
    ),
    Gauge("checkpoints", lambda s: s.checkpoint.kept, "Checkpoints that are kept"),
    Gauge("checkpoints_bytes", lambda s: s.checkpoint.bytes, "Size of all checkpoints that are kept"),
    Gauge("undoable_steps", lambda s: s.undo.steps, "Last steps that a rollback can take back in memory, at once"),
    Gauge("patterns_active", lambda s: s.dreams.active, "Patterns that are practised in dreams"),
    Gauge("patterns_settled", lambda s: s.dreams.settled, "Patterns that are shown without being told"),
    Gauge("patterns_retired", lambda s: s.dreams.retired, "Patterns that were given up or ended by a person"),
    Gauge("dreams", lambda s: s.dreams.total, "Dreams that began over the life of the journal"),
    Gauge("dreams_share", lambda s: s.dreams.share, "Share of dreams among the examples that were learned lately"),
    Gauge("lessons_waiting", lambda s: s.lessons.waiting + s.lessons.fading, "Lessons whose turn has not come"),
    Gauge("lessons_known", lambda s: s.lessons.known, "Lessons that the model knows"),
    Gauge("lessons_given_up", lambda s: s.lessons.given_up, "Lessons that could not be taught, or were forgotten"),
    Gauge("quality_incident_open", lambda s: s.quality.incident is not None, "1 while an alarm is not settled"),
    Gauge("quality_look_seconds", lambda s: s.quality.look_s, "Time that the last measurement by probes took"),
    Gauge("preference_margin", lambda s: s.preferences.margin, "Mean margin of the last pairs before their steps"),
    Gauge("preference_right", lambda s: s.preferences.right, "Share of the last comparisons that the model had right"),
    Gauge("update_leased", lambda s: int(s.updates.lease is not None), "1 while an outside trainer has the lease"),
    Gauge("preference_gathered", lambda s: s.preferences.gathered, "Rated answers that wait for others of their step"),
    Gauge("journal_seq", lambda s: s.journal.seq, "Number of the newest event"),
    Gauge("journal_bytes", lambda s: s.journal.bytes, "Size of the journal"),
    Gauge("journal_free_bytes", lambda s: s.journal.free_bytes, "Free space on the journal's disk"),
)


class Counter(NamedTuple):
    """A count of the status that only grows over the life of the journal."""

    name: str
    value: Callable[[Status], int]
    help: str


COUNTERS = (
    Counter("examples_accepted", lambda s: s.queue.accepted, "Examples taken into the journal"),
    Counter("preference_pairs", lambda s: s.preferences.pairs, "Pairs of answers learned by dpo"),
    Counter("updates", lambda s: s.updates.committed, "Updates of the weights by outside trainers"),
    Counter("preference_ratings", lambda s: s.preferences.ratings, "Rated answers learned by kto"),
    Counter("quality_looks", lambda s: s.quality.looks, "Measurements by probes, those of baselines included"),
    Counter("quality_failed_looks", lambda s: s.quality.failed, "Those of them that failed"),
    Counter("quality_alarms", lambda s: s.quality.incidents, "Alarms of the quality guard"),
    Counter("quality_steps_taken_back", lambda s: s.quality.taken_back, "Steps that alarms took back"),
    Counter("quality_replays", lambda s: s.quality.replays, "Replays that looked for the examples that did it"),
)
FIGURES = ("reward", "spread", "length", "age", "ratio", "clipped", "kl", "entropy")
"""of an environment's last steps"""
PROBED_MAX = 64
"""most probe metrics shown, the first by name: their number depends on the user's probe files"""


class Figures(Collector):
    """The status as metrics. `ask` returns it or raises ApolloError; it may block, and is called on collection."""

    def __init__(self, ask: Callable[[], Status]) -> None:
        self._ask = ask
        self._asking = threading.Lock()
        self._text = b""
        self._until = 0.0

    def text(self) -> bytes:
        """The exposition, no older than FRESH_S, even if the supervisor does not answer. Blocks: not for an event
        loop."""
        with self._asking:
            if time.monotonic() >= self._until:
                self._text = generate_latest(self)
                self._until = time.monotonic() + FRESH_S
            return self._text

    def collect(self) -> Iterable[Metric]:
        """Source: prometheus_client, `Collector`."""
        try:
            return list(_families(self._ask()))
        except (DaemonUnreachable, LinkClosed):
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, vLLM's own figures must not be lost to ours
            logger.warning("apollod: no figures on %s: %s", PATH, line_of(error))
        return [GaugeMetricFamily("apollod_up", UP, 0)]


class AppendedMetrics:
    """The middleware: appends our metrics to vLLM's answer to GET /metrics. An answer other than a plain exposition is
    unchanged."""

    def __init__(self, app: App, figures: Figures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Source: the ASGI specification, HTTP connection scope."""
        if scope["type"] != "http" or scope["method"] != "GET" or not _is_metrics(scope) or not _wants_ours(scope):
            await self._app(scope, receive, send)
            return
        ours = await asyncio.to_thread(self._figures.text)
        # vLLM's app under /metrics/ would send OpenMetrics, or gzip, on request, to which nothing can be appended.
        headers = [(k, v) for k, v in scope["headers"] if k not in NEGOTIATED]
        await self._app({**scope, "headers": headers}, receive, _appending(send, ours))


def quieten_access_log() -> None:
    """Exclude scrapes of named metrics and waits for the next user from uvicorn's access log: several a second would
    hide the other lines. uvicorn's later configuration keeps a logger's filters."""
    logging.getLogger("uvicorn.access").addFilter(_worth_a_line)


def _worth_a_line(record: logging.LogRecord) -> bool:
    """True for requests to log. uvicorn's arguments are: client, method, path with its query, HTTP version, status."""
    match record.args:
        case (_, "GET", str(target), _, 200):
            url = urlsplit(unquote(target))
            scrape = url.path.rstrip("/").endswith(PATH) and f"{NAMES}=" in url.query
            return not (scrape or url.path.endswith(NEXT_USER))
    return True


def _appending(send: Send, ours: bytes) -> Send:
    plain = False

    async def appending(message: Message) -> None:
        nonlocal plain
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            plain = message["status"] == 200 and any(
                k.lower() == b"content-type" and v.startswith(b"text/plain") for k, v in headers
            )
            if plain:
                longer = [
                    (k, str(int(v) + len(ours)).encode() if k.lower() == b"content-length" else v) for k, v in headers
                ]
                message = {**message, "headers": longer}
        elif message["type"] == "http.response.body" and plain and not message.get("more_body"):
            message = {**message, "body": message.get("body", b"") + ours}
        await send(message)

    return appending


def _is_metrics(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path.rstrip("/") == PATH


def _wants_ours(scope: Scope) -> bool:
    """True unless the scrape names metrics and none of them comes from the supervisor, which need not be asked then."""
    names = parse_qs(scope["query_string"].decode("ascii", "replace")).get(NAMES)
    return not names or any(name.startswith(OURS) and name not in (BEGUN, ENDED) for name in names)


def _families(status: Status) -> Iterable[Metric]:
    yield GaugeMetricFamily("apollod_up", UP, 1)
    state = GaugeMetricFamily(
        "apollod_state", "1 for the state that the daemon is in, 0 for the others", labels=["state"]
    )
    examples = GaugeMetricFamily(
        "apollod_examples", "Examples by what became of them; a rollback undoes trained ones", labels=["state"]
    )
    ready = GaugeMetricFamily("apollod_child_ready", "1 when the process does its work", labels=["child"])
    restarts = CounterMetricFamily(
        "apollod_child_restarts", "Starts after the first since the daemon started", labels=["child"]
    )
    for each in STATES:
        state.add_metric([each], each == status.state)
    for each in EXAMPLES:
        examples.add_metric([each], getattr(status.queue, each))
    for child, process in (("engine", status.engine), ("trainer", status.trainer)):
        ready.add_metric([child], process.ready)
        restarts.add_metric([child], process.restarts)
    yield from (state, examples, ready, restarts)
    yield from (CounterMetricFamily(f"apollod_{one.name}", one.help, one.value(status)) for one in COUNTERS)
    yield from _of_environments(status.environments)
    yield from _of_probes(status.quality.metrics[:PROBED_MAX])
    for gauge in GAUGES:
        value = gauge.value(status)
        if value is not None and value is not UNSET:
            yield GaugeMetricFamily(f"apollod_{gauge.name}", gauge.help, value)


def _of_environments(environments: Sequence[EnvironmentStatus]) -> Iterable[Metric]:
    """Figures of each environment; means over its last steps are absent before the first."""
    groups = CounterMetricFamily(
        "apollod_environment_groups", "Groups of answers, by what became of them", labels=["environment", "result"]
    )
    figure = GaugeMetricFamily(
        "apollod_environment_figure", "Means over the last steps that learned its groups",
        labels=["environment", "figure"],
    )  # fmt: skip
    paused = GaugeMetricFamily("apollod_environment_paused", "1 while it is paused", labels=["environment"])
    for one in environments:
        for result in ("learned", "flat", "failed", "outdated"):
            groups.add_metric([one.name, result], getattr(one, result))
        for name in FIGURES:
            if (value := getattr(one, name)) is not None:
                figure.add_metric([one.name, name], value)
        paused.add_metric([one.name], one.state == "paused")
    return [each for each in (groups, figure, paused) if each.samples]


def _of_probes(metrics: Sequence[QualityMetric]) -> Iterable[Metric]:
    """Gauges of the probes; metrics without a measurement are absent, and both gauges before there is a baseline."""
    value = GaugeMetricFamily("apollod_quality_value", "Metric of the probes at the last look", labels=["metric"])
    drop = GaugeMetricFamily(
        "apollod_quality_drop", "How much worse it was than at the baseline; below 0: better", labels=["metric"]
    )
    for one in metrics:
        if one.value is not None:
            value.add_metric([one.name], one.value)
        if one.drop is not None:
            drop.add_metric([one.name], one.drop)
    return [each for each in (value, drop) if each.samples]
