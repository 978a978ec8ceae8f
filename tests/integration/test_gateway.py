"""Engines elsewhere: every version reaches them, they hold generation while they load, and what is not reached is told
and made up for. The engines are servers of this test (`support.engine_elsewhere`) that load the real files;
`test_stock_engine.py` has a real vLLM."""

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line
from support.engine_elsewhere import EngineElsewhere
from support.sent_way import LOADS

from apollod.reader import Reader

LEARNS = [chat_line(f"What is the name of lake {n}?", f"It is called Lake {n * 7}.") for n in range(6)]


def config(
    bridge: str, *receivers: EngineElsewhere, more: str = "", dialects: tuple[str, str] = ("sglang", "vllm")
) -> str:
    tables = [
        f'[[weights.receiver]]\nurl = "{one.url}"\ndialect = "{dialects[n % 2]}"\n' for n, one in enumerate(receivers)
    ]
    return f'[weights]\nbridge = "{bridge}"\n{more}' + "".join(tables)


def until(what: Callable[[], object], within_s: float = 180.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def served(daemon: Daemon) -> tuple[str, str]:
    """The text of a completion (the fingerprint of the weights there), and the model that answered."""
    status, answer = daemon.post("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1})
    assert status == 200, answer
    return answer["choices"][0]["text"], answer["model"]


@pytest.fixture
def there(tiny_model: Path) -> Iterator[EngineElsewhere]:
    engine = EngineElsewhere(tiny_model)
    yield engine
    engine.end()


@pytest.fixture
def other(tiny_model: Path) -> Iterator[EngineElsewhere]:
    engine = EngineElsewhere(tiny_model, "the other")
    yield engine
    engine.end()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[tuple[Daemon, EngineElsewhere]]:
    """A daemon with one engine, for tests of which only the last one learns."""
    engine = EngineElsewhere(tiny_model)
    daemon = Daemon(tmp_path_factory.mktemp("disk"), tiny_model, config("disk", engine), engine="")
    try:
        daemon.start()
        daemon.wait_ready()
        yield daemon, engine
    finally:
        daemon.end()
        engine.end()


@pytest.fixture
def start(tmp_path: Path, tiny_model: Path) -> Iterator[Callable[[str], Daemon]]:
    started: list[Daemon] = []

    def begin(extra: str) -> Daemon:
        daemon = Daemon(tmp_path, tiny_model, extra, engine="")
        started.append(daemon)
        daemon.start()
        daemon.wait_ready()
        return daemon

    yield begin
    for daemon in started:
        daemon.end()


def test_every_version_reaches_both_engines_and_a_failure_is_told_and_made_up_for(
    start: Callable[[str], Daemon], there: EngineElsewhere, other: EngineElsewhere
) -> None:
    daemon = start(config("disk", there, other))
    status = daemon.status()
    assert status["weights"]["bridge"] == "disk"
    assert there.fingerprint == other.fingerprint == status["weights"]["fingerprint"], "sent at the start"

    daemon.drop("a.jsonl", *LEARNS[:2])
    fingerprint = daemon.wait_learned(2)["weights"]["fingerprint"]
    until(lambda: there.fingerprint == other.fingerprint == fingerprint and there.label == other.label == "2")
    for one, order in (
        (there, ["/pause_generation", "/update_weights_from_disk", "/continue_generation"]),
        (other, ["/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume"]),
    ):
        until(lambda one=one, order=order: [call for call in one.calls if not call.startswith("/v1/")] == order * 3)
    assert {served(daemon)[1] for _ in range(4)} == {"there", "the other"}, "requests take turns"
    sent = "SELECT step, receiver, fingerprint, bytes, error FROM weights_sent ORDER BY seq"
    bytes_ = status["weights"]["bytes"]
    until(lambda: len(daemon.query(sent)) >= 6)
    rows = daemon.query(sent)
    steps = dict(daemon.query("SELECT step, fingerprint FROM steps"))
    assert [row[0] for row in rows] == [0, 0, 1, 1, 2, 2] and {row[1] for row in rows} == {there.url, other.url}
    assert all(row[2] == steps[row[0]] and 0 < row[3] <= bytes_ for row in rows if row[0])
    until(lambda: len(list((daemon.root / "state" / "sent").iterdir())) == 2)  # old versions are removed

    there.refuses.add("/update_weights_from_disk")
    daemon.drop("b.jsonl", *LEARNS[2:3])
    daemon.wait_learned(3)
    until(lambda: [row for row in daemon.query(sent) if row[4]])
    (failed,) = [row for row in daemon.query(sent) if row[4]][:1]
    assert failed[:2] == (3, there.url) and "out of memory" in failed[4]
    assert not there.paused, "generation went on"
    told = {one["url"]: one["error"] for one in daemon.status()["weights"]["receivers"]}
    assert told == {there.url: failed[4], other.url: ""} and "out of memory" in daemon.ctl("status").stdout
    now = daemon.status()["weights"]["fingerprint"]
    assert {served(daemon) for _ in range(4)} == {(now, "the other")}, "who has old weights is not asked"
    there.refuses.clear()
    until(lambda: there.fingerprint == now)
    until(lambda: {served(daemon)[1] for _ in range(4)} == {"there", "the other"})

    other.end()
    until(lambda: {served(daemon) for _ in range(4)} == {(now, "there")})
    other.serve()
    until(lambda: other.fingerprint == now)

    daemon.ctl("rollback", "--to", "1")
    until(lambda: daemon.status()["step"] == 1)
    until(lambda: there.fingerprint == other.fingerprint == steps[1])


def test_what_is_not_passed_on_and_who_may_ask(disk: tuple[Daemon, EngineElsewhere]) -> None:
    daemon, there = disk
    closed = ["/collective_rpc", "/pause", "/update_weight_version", "/sleep", "/v1/load_lora_adapter"]
    for path in closed:
        assert daemon.post(path, {})[0] == 404, path
    assert not set(closed) & set(there.calls)
    assert daemon.get("/v1/models")[1]["data"][0]["id"] == "tiny"
    until(lambda: daemon.post("/v1/completions", {"model": "another", "prompt": "x"})[0] == 200)
    asked = [body["model"] for body in there.bodies]
    assert "another" in asked and "tiny" not in asked, "a wrong name is for the engine to refuse"
    status, answer = daemon.post("/train", {"messages": [{"role": "user", "content": "a"}]})
    assert status == 400 and "hint" in answer
    there.end()
    until(lambda: daemon.post("/v1/completions", {"model": "tiny", "prompt": "x"})[0] == 503)
    there.serve()
    until(lambda: daemon.post("/v1/completions", {"model": "tiny", "prompt": "x"})[0] == 200)


def test_a_daemon_that_is_killed_while_it_sends_brings_the_version_of_its_journal(
    disk: tuple[Daemon, EngineElsewhere],
) -> None:
    daemon, there = disk
    there.refuses.add("/update_weights_from_disk")
    daemon.drop("a.jsonl", *LEARNS[:1])
    daemon.wait_learned(1)
    daemon.kill()
    there.refuses.clear()
    daemon.start()
    daemon.wait_ready()
    until(lambda: there.fingerprint == daemon.status()["weights"]["fingerprint"])
    assert there.label == "1" and served(daemon)[0] == there.fingerprint


def test_a_reader_of_files_gets_whole_versions(start: Callable[[str], Daemon], there: EngineElsewhere) -> None:
    daemon = start(config("memmap", there, dialects=("vllm", "vllm")))
    reader = Reader(daemon.root / "state" / "sent")
    found = []
    until(lambda: (first := reader.poll()) and found.append(first.number) is None)
    assert found == [0] and reader.poll() is None
    daemon.drop("a.jsonl", *LEARNS[:3])
    seen = []

    def read() -> bool:
        if (found := reader.poll()) is not None:
            seen.append((found.number, found.fingerprint))
        return bool(seen) and seen[-1][0] == 3

    until(read)
    steps = dict(daemon.query("SELECT step, fingerprint FROM steps"))
    assert all(fingerprint == steps[number] for number, fingerprint in seen)


def test_an_engine_that_loads_at_its_start_is_restarted(
    start: Callable[[str], Daemon], there: EngineElsewhere, tmp_path: Path
) -> None:
    script = tmp_path / "restart.py"
    script.write_text(LOADS)
    daemon = start(config("restart", there, more=f'command = ["{sys.executable}", "{script}"]\n'))
    daemon.drop("a.jsonl", *LEARNS[:1])
    fingerprint = daemon.wait_learned(1)["weights"]["fingerprint"]
    until(lambda: there.fingerprint == fingerprint)
    until(lambda: served(daemon)[0] == fingerprint)
    script.write_text("raise SystemExit('no such unit')\n")
    daemon.drop("b.jsonl", *LEARNS[1:2])
    daemon.wait_learned(2)
    until(lambda: daemon.query("SELECT error FROM weights_sent WHERE error LIKE '%no such unit%'"))


def test_adapters_are_named_in_requests_and_never_in_answers(
    start: Callable[[str], Daemon], there: EngineElsewhere, other: EngineElsewhere
) -> None:
    there.adapters, other.adapters = {}, {}
    daemon = start(config("lora", there, other))
    daemon.drop("a.jsonl", *LEARNS[:1])
    learned = daemon.wait_learned(1)["weights"]["fingerprint"]
    for one in (there, other):
        until(lambda one=one: [name.rpartition("-")[0] for name in one.adapters or {}] == ["apollo-v1"])
    assert {served(daemon) for _ in range(4)} == {(learned, "there"), (learned, "tiny")}
    for model in ({"model": "the other"}, {"model": None}, {}):  # none of them is answered by the model without it
        until(lambda model=model: daemon.post("/v1/completions", {"prompt": "x", **model})[0] == 200)
    asked = [(body["model"], body.get("lora_path")) for body in [*there.bodies, *other.bodies]]
    assert {path for model, path in asked if model == "there" and path.startswith("apollo-v1")} == {*there.adapters}
    assert {model for model, _ in asked if model.startswith("apollo-v1")} == {*other.adapters}
    assert "the other" not in {body["model"] for body in other.bodies}

    streams = set[str]()
    while len(streams) < 2:  # one of each
        body = json.dumps({"model": "tiny", "prompt": "x", "stream": True}).encode()
        with urllib.request.urlopen(urllib.request.Request(daemon.url + "/v1/completions", body), timeout=60) as answer:
            streams.add(answer.read().decode())
    assert not any("apollo-v" in text for text in streams)
    assert {json.loads(text.split("\n")[0][6:])["model"] for text in streams} == {"there", "tiny"}
    assert all(text.count(learned) == 2 and text.count("data: [DONE]") == 1 for text in streams)

    before, held = {*there.adapters, *other.adapters}, [len(there.bodies), len(other.bodies)]
    there.paused = other.paused = True
    with ThreadPoolExecutor(6) as beside:
        waiting = [beside.submit(served, daemon) for _ in range(6)]
        until(lambda: len(there.bodies) > held[0] and len(other.bodies) > held[1])
        daemon.drop("b.jsonl", *LEARNS[1:2])
        daemon.wait_learned(2)
        until(lambda: len(there.adapters or {}) == len(other.adapters or {}) == 2)
        time.sleep(0.5)
        assert before <= {*there.adapters, *other.adapters}, "requests still use them"
        there.paused = other.paused = False
        assert {one.result()[0] for one in waiting} == {learned}, "a request ends with the weights that it began with"
    until(lambda: not before & {*(there.adapters or {}), *(other.adapters or {})})

    other.adapters = None  # as one that was started anew without adapters
    daemon.drop("c.jsonl", *LEARNS[2:3])
    daemon.wait_learned(3)
    told = "SELECT error FROM weights_sent WHERE step = 3 AND error LIKE '%--enable-lora%'"
    until(lambda: daemon.query(told))
    assert {served(daemon)[1] for _ in range(4)} == {"there"}
