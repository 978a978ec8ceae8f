"""/metrics as vLLM mounts it, with our figures behind; a stand-in supervisor on a real socket answers with the
status of a real state."""

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from support.engine_host import Host

from apollod.adapters.llm.engine_watch import read_user_requests
from apollod.core import events as ev
from apollod.core.facts.alignment import AlignmentState
from apollod.core.facts.checkpoints import CheckpointRef, CheckpointsState
from apollod.core.facts.children import Child, ChildrenState
from apollod.core.facts.daemon import DaemonState
from apollod.core.facts.dreams.state import Course, DreamsState
from apollod.core.facts.intake.events import Given
from apollod.core.facts.intake.state import IntakeCounts, IntakeState
from apollod.core.facts.lessons.stages import LessonState
from apollod.core.facts.lessons.state import Lesson, LessonsState
from apollod.core.facts.preferences import PreferencesState
from apollod.core.facts.publishing import PublishingState
from apollod.core.facts.quality.sequential import Baseline
from apollod.core.facts.quality.state import Incident, QualityState, Totals
from apollod.core.facts.review import ReviewCounts, ReviewState
from apollod.core.facts.training import TrainingCounts, TrainingState
from apollod.core.rules.daemon import STATES
from apollod.core.rules.rollback import Undo
from apollod.core.settings import PatternSettings
from apollod.core.state import State
from apollod.engine.http import metrics, routes
from apollod.supervisor.status_view import Seen, status_view
from apollod.wire import messages as msg
from apollod.wire.engine_terms import BEGUN, ENDED
from apollod.wire.status import Journal, Status

DOCS = Path(__file__).parents[3] / "docs" / "service.md"
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}
BEHAVIOURS: dict[str, LessonState] = {"a": "practising", "b": "known", "c": "known"}
MEASURED = ev.AlignmentMeasured(
    step=10,
    tokens=9,
    mean_abs_diff=0.004,
    max_abs_diff=0.02,
    mean_diff=0.001,
    worst=3,
    nonfinite=0,
    bound=0.1,
    aligned=True,
    seconds=0.2,
    probe="p",
)
JOURNAL = Journal(seq=345, bytes=4096, head_hash="h", free_bytes=7_000_000_000)


def state() -> State:
    """After a rollback and two crashes of the trainer; paused."""
    return State(
        daemon=DaemonState(paused=True, started_at_ns=1_000_000_000),
        children=ChildrenState(engine=Child("ready", 1, 1), trainer=Child("ready", 2, 3), state_bytes=99),
        intake=IntakeState(
            ratings={"a": "direct"},
            ratings_per_step=8,
            undone={"u": None},
            withdrawn={"v": None, "w": None},
            counts=IntakeCounts(accepted=20, rejected=4, duplicates=5),
        ),
        review=ReviewState(counts=ReviewCounts(declined=1, edited=2, expired=3)),
        training=TrainingState(version=12, counts=TrainingCounts(trained=11, skipped=2, held=3)),
        checkpoints=CheckpointsState([CheckpointRef(8, "/c/8", "f", 1_700_000_000_500_000_000, bytes=64)]),
        publishing=PublishingState(engine_paused=True),
        alignment=AlignmentState(measured=MEASURED),
        lessons=LessonsState(
            {
                f"L{n}": Lesson(f"L{n}", Given("It is so."), "p", 0, state=state)
                for n, state in enumerate(["waiting", "waiting", "fading", *["known"] * 4, *["given up"] * 5], 1)
            }
        ),
        dreams=DreamsState(
            {name: Course(PatternSettings(name, "Ask."), "p", 0, state) for name, state in BEHAVIOURS.items()},
            number=7,
            learned=[True, False],
        ),
        preferences=PreferencesState(3, 2, (0.5, 0.25), (1.0, 0.0)),
        quality=QualityState(
            number=9,
            baseline={"facts.passed": Baseline({"a": 1.0, "b": 1.0}, 0.0), "text.loss": Baseline({"t": 2.0}, 0.0)},
            last={"facts.passed": {"a": 1.0, "b": 0.0}},
            last_s=1.5,
            incident=Incident(3, 10, 4, ("facts.passed",)),
            incidents=3,
            totals=Totals(failed=2, taken_back=6, replays=11),
        ),
    )


class Server:
    """vLLM's own /metrics and our plugin, in the order of vLLM's `build_app`."""

    def __init__(self, directory: Path) -> None:
        from vllm.entrypoints.serve.instrumentator.metrics import attach_router  # three seconds, only here

        self.host = Host(directory)
        self.state = state()
        self.host.answerer = lambda request: msg.Reply(self.status())
        self.app = FastAPI()
        attach_router(self.app)
        routes.Routes(str(self.host.path)).attach_router(self.app)
        self.client = TestClient(self.app)

    def status(self) -> Status:
        shown = status_view(self.state, 61_000_000_000, JOURNAL, seen=Seen(served=11))
        return msgspec.structs.replace(shown, undo=Undo(steps=4))

    def scrape(self, path: str = "/metrics") -> dict[str, float]:
        answer = self.client.get(path, headers=PROMETHEUS)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
        assert "content-encoding" not in answer.headers
        assert int(answer.headers.get("content-length", len(answer.content))) == len(answer.content)
        return {
            sample.name + "".join(f"{{{v}}}" for v in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    with made.client:
        yield made
    made.host.close()


def ours(samples: dict[str, float]) -> dict[str, float]:
    """Of the supervisor: what the engine counts of users' requests is there in any case."""
    names = [name for name in samples if name.startswith("apollod_") and "user_requests" not in name]
    return {name.removeprefix("apollod_"): samples[name] for name in names}


def test_a_scrape_has_vllms_metrics_and_the_figures_of_status(server: Server) -> None:
    samples = server.scrape()
    assert samples["process_start_time_seconds"] > 0  # of the registry that vLLM shows
    assert ours(samples) == {
        "up": 1,
        "step": 12,
        "uptime_seconds": 60,
        "weights_version_served": 11,
        "weights_bytes": 0,
        "weights_paused": 1,
        **{f"state{{{each}}}": each == "paused" for each in STATES},
        "examples{pending}": 0,
        "examples{held}": 3,
        "examples{trained}": 11,
        "examples{skipped}": 2,
        "examples{undone}": 1,
        "examples{withdrawn}": 2,
        "examples{declined}": 1,
        "examples{edited}": 2,
        "examples{expired}": 3,
        "examples{rejected}": 4,
        "examples{duplicates}": 5,
        "examples_accepted_total": 20,
        "child_ready{engine}": 1,
        "child_ready{trainer}": 1,
        "child_restarts_total{engine}": 0,
        "child_restarts_total{trainer}": 2,
        "alignment_mean_difference": 0.004,
        "alignment_max_difference": 0.02,
        "alignment_bound": 0.1,
        "alignment_step": 10,
        "optimizer_state_bytes": 99,
        "checkpoint_step": 8,
        "checkpoint_timestamp_seconds": 1_700_000_000.5,
        "checkpoint_steps_since": 0,
        "checkpoints": 1,
        "checkpoints_bytes": 64,
        "patterns_active": 1,
        "patterns_settled": 2,
        "patterns_retired": 0,
        "dreams": 7,
        "dreams_share": 0.5,
        "lessons_waiting": 3,
        "lessons_known": 6,
        "lessons_given_up": 5,
        "quality_value{facts.passed}": 0.5,
        "quality_drop{facts.passed}": 0.5,
        "preference_pairs_total": 3,
        "preference_ratings_total": 2,
        "preference_margin": 0.375,
        "preference_right": 0.5,
        "preference_gathered": 1,
        "update_leased": 0,
        "updates_total": 0,
        "quality_looks_total": 9,
        "quality_failed_looks_total": 2,
        "quality_alarms_total": 3,
        "quality_incident_open": 1,
        "quality_look_seconds": 1.5,
        "quality_steps_taken_back_total": 6,
        "quality_replays_total": 11,
        "journal_seq": 345,
        "journal_bytes": 4096,
        "undoable_steps": 4,
        "journal_free_bytes": 7_000_000_000,
    }


def test_what_is_not_measured_yet_is_absent(server: Server) -> None:
    server.state = State()
    samples = ours(server.scrape())
    assert samples["up"] == 1 and samples["state{starting}"] == 1 and samples["step"] == 0
    assert not samples.keys() & {
        "alignment_mean_difference",
        "alignment_step",
        "checkpoint_step",
        "checkpoint_timestamp_seconds",
        "quality_look_seconds",
    }
    assert samples["quality_looks_total"] == samples["quality_incident_open"] == 0
    assert not [name for name in samples if name.startswith(("quality_value", "quality_drop"))]


def test_of_many_metrics_of_probes_only_so_many_are_shown(server: Server) -> None:
    names = [f"g{number:03}.passed" for number in range(200)]
    server.state.quality = QualityState(
        baseline={name: Baseline({"a": 1.0}, 0.0) for name in names}, last={name: {"a": 1.0} for name in names}
    )
    shown = [name for name in ours(server.scrape()) if name.startswith(("quality_value", "quality_drop"))]
    assert len(shown) == 2 * metrics.PROBED_MAX and "quality_drop{g063.passed}" in shown


def test_when_each_scrape_has_a_registry_of_its_own_and_under_a_trailing_slash(
    server: Server, tmp_path: Path, monkeypatch
) -> None:
    with_slash = server.scrape("/metrics/")  # vLLM's mount, which would send gzip of OpenMetrics
    assert with_slash["apollod_step"] == 12 and with_slash["process_start_time_seconds"] > 0
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    samples = server.scrape()
    assert samples["apollod_step"] == 12 and "process_start_time_seconds" not in samples


@pytest.mark.parametrize("hangs", [False, True])
def test_a_supervisor_that_does_not_answer_is_up_0_and_costs_nothing_else(
    server: Server, monkeypatch, hangs: bool
) -> None:
    monkeypatch.setattr(routes, "SCRAPE_S", 0.2)
    server.host.close()
    server.host.path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        if hangs:
            listener.bind(str(server.host.path))
            listener.listen()  # and never accepts
        samples = server.scrape()
    assert ours(samples) == {"up": 0} and samples["process_start_time_seconds"] > 0


@pytest.mark.parametrize("body", [{}, {"state": "serving"}, [], {"state": "serving", "queue": {}}])
def test_a_supervisor_of_another_version_costs_vllm_nothing(server: Server, body: object) -> None:
    server.host.answerer = lambda request: msg.Reply(body)
    samples = server.scrape()
    assert ours(samples) == {"up": 0} and "python_info" in str(samples)


def test_other_requests_are_answered_while_a_scrape_waits(server: Server) -> None:
    answering = threading.Event()
    server.host.answerer = lambda request: msg.Reply(server.status() if answering.wait(30) else {})
    server.app.add_api_route("/health", lambda: {})
    scraped: list[dict[str, float]] = []
    scrape = threading.Thread(target=lambda: scraped.append(server.scrape()))
    scrape.start()
    while not server.host.requests:
        time.sleep(0.005)
    assert server.client.get("/health").status_code == 200
    answering.set()
    scrape.join()
    assert scraped[0]["apollod_up"] == 1  # on the event loop it would have kept /health waiting until it gave up


def test_the_supervisor_is_asked_once_a_second(server: Server, monkeypatch) -> None:
    monkeypatch.setattr(metrics, "FRESH_S", 2.0)
    for _ in range(5):
        server.scrape()
    assert len(server.host.requests) == 1
    time.sleep(2.0)
    server.state.training.version = 13
    assert server.scrape()["apollod_step"] == 13 and len(server.host.requests) == 2


def test_who_names_vllms_metrics_gets_them_alone_and_asks_the_supervisor_nothing(server: Server) -> None:
    text = server.client.get("/metrics/?name[]=process_start_time_seconds").text
    assert {family.name for family in text_string_to_metric_families(text)} == {"process_start_time_seconds"}
    assert not server.host.requests
    server.client.post("/v1/nothing")
    users = server.client.get(f"/metrics/?name[]={BEGUN}&name[]={ENDED}").text
    assert read_user_requests(users.encode()).begun >= 1 and len(users.splitlines()) < 10
    assert not server.host.requests
    assert server.scrape("/metrics/?name[]=process_start_time_seconds&name[]=apollod_step")["apollod_step"] == 12


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (("GET", "/metrics/?name[]=a&name[]=b", 200), False),
        (("GET", "/base/metrics?name%5B%5D=a", 200), False),
        (("GET", "/metrics/?name[]=a", 500), True),
        (("GET", "/metrics", 200), True),
        (("POST", "/v1/completions?name[]=a", 200), True),
    ],
)
def test_the_log_of_requests_has_no_line_for_each_scrape_of_a_few_metrics(
    server: Server, line: tuple[str, str, int], kept: bool
) -> None:
    config = uvicorn.Config(server.app)  # configures the loggers, later than our plugin does
    method, path, status = line
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 0, "%s", ("c:1", method, path, "1.1", status), None)
    assert config.access_log and bool(logging.getLogger("uvicorn.access").filter(record)) == kept


@pytest.mark.parametrize("path", ["/metrics/x", "/v1/metrics", "/metricsx"])
def test_other_paths_and_methods_and_errors_stay_as_they_are(server: Server, path: str) -> None:
    assert "apollod_up" not in server.client.get(path).text
    assert "apollod_up" not in server.client.post("/metrics").text
    assert not server.host.requests


def test_an_answer_that_is_no_exposition_is_left_alone(server: Server) -> None:
    server.app.router.routes[:] = []
    assert server.client.get("/metrics").json() == {"detail": "Not Found"}
    server.app.add_api_route("/metrics", lambda: {"a": 1})
    assert server.client.get("/metrics").json() == {"a": 1}


def test_under_a_root_path(server: Server) -> None:
    server.app.root_path = "/base"
    assert server.scrape()["apollod_step"] == 12
    assert server.scrape("/base/metrics")["apollod_step"] == 12


def test_no_key_is_asked_and_no_text_shown(server: Server) -> None:
    server.state.daemon.halted = "a secret about /home/x"
    assert server.client.portal is not None
    answer = server.client.get("/metrics").text
    assert "secret" not in answer and "/c/8" not in answer and 'state="degraded"} 1.0' in answer


def test_the_documentation_has_every_figure(server: Server) -> None:
    shown = set(re.findall(r"^# TYPE (apollod_\w+(?<!_created)) ", server.client.get("/metrics").text, re.M))
    documented = set(re.findall(r"`(apollod_\w+)", DOCS.read_text()))
    assert shown == documented
