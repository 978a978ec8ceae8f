"""Measures the cost of making examples from logs: Claude Code sessions, read as by `[[watch]]`.

The path is reader, redaction, moments, stripping, keys of answers, signatures and the events of each batch, on one
core, in CPU seconds, compared with `json.loads` of every line of the same file, the least possible cost; a second
figure includes the journal, with its lookups for each batch. Sessions are made up: prompts, answers, calls of tools and
their results in realistic shares, mostly results. Memory is the growth of the high-water mark while reading a large
file (`--large`: 2 GB).

The rest is a whole daemon with an engine without a model (apollod/testing/stub_engine.py): the time of `ctl status`,
and of a fresh line of the inbox, while a backlog of `--files` logs is read; then the cost of an idle watch.
"""

import asyncio
import json
import random
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from apollod.adapters.journal.writer import Journal
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SourceFiles, Terms
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.intake.state import Position
from apollod.core.fold import fold
from apollod.core.inputs import Batch
from apollod.core.rules.intake.policy import intake_events
from apollod.core.state import State
from apollod.curation.moments import Rules
from apollod.testing import daemon as driver
from apollod.testing.daemon import Daemon
from benchmarks import report

STUB_ENGINE = "apollod.testing.stub_engine"
FILE_MB, ROUNDS = 16, 3
MEMORY_MB, LARGE_MB = 64, 2000
FILES, TURNS, REST_S = 10.0
IDLE_S = (10_000, 2, 65.0)  # turns of each session; longer than the interval of a watch's full scans
RATE_MIN, MEMORY_MB_MAX = 20.0, 64.0
STATUS_MS_MAX, LINE_S_MAX, IDLE_CORE_MAX = 150.0, 2.0, 0.01
CLOCK_TICK_S = 0.01


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--large", action="store_true", help="a file of 2 GB for the memory")
    parser.add_argument("--files", type=int, default=FILES, help="of the backlog")
    parser.add_argument("--no-daemon", action="store_true", help="only reading")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        root = Path(directory)
        _write(root / "log.jsonl", FILE_MB)
        size = (root / "log.jsonl").stat().st_size / 1e6
        rounds = [(_floor(root / "log.jsonl"), _read(root, "log.jsonl")) for _ in range(ROUNDS)]
        figures["json_loads_mb_per_s"] = size / min(floor for floor, _ in rounds)
        figures["examples_mb_per_s"] = size / min(read for _, read in rounds)
        figures["with_journal_mb_per_s"] = size / asyncio.run(_journaled(root, "log.jsonl"))
        ratio = statistics.median(read / floor for floor, read in rounds)
        _write(root / "large.jsonl", LARGE_MB if args.large else MEMORY_MB)
        before = _high_mb()
        _read(root, "large.jsonl")
        figures["memory_growth_mb"] = _high_mb() - before
        goals = {
            "examples_mb_per_s": report.goal(figures["examples_mb_per_s"], RATE_MIN, False),
            "memory_growth_mb": report.goal(figures["memory_growth_mb"], MEMORY_MB_MAX, True),
        }
        if not args.no_daemon:
            figures |= _daemon(root / "life", args.files)
            goals |= {
                "status_in_backlog_ms": report.goal(figures["status_in_backlog_ms"], STATUS_MS_MAX, True),
                "line_in_backlog_s": report.goal(figures["line_in_backlog_s"], LINE_S_MAX, True),
                "idle_watch_core": report.goal(figures["idle_watch_core"], IDLE_CORE_MAX, True),
            }
    report.report("ingest", figures, {"cost_to_json_loads": ratio}, goals, threads=1, as_json=args.json)


# --- reading ------------------------------------------------------------------------------------------------------


def _floor(log: Path) -> float:
    """CPU seconds of decoding every line alone."""
    begin = time.process_time()
    with log.open("rb") as file:
        for line in file:
            json.loads(line)
    return time.process_time() - begin


def _batches(root: Path, name: str, state: State) -> Iterator[Batch]:
    files = SourceFiles(Quarantine(root / "quarantine"), Terms(Rules(models=("*",))))
    while (batch := files.read_batch(str(root / name), state.intake.sources)) is not None:
        yield batch
        own = Position(batch.source, batch.offset, batch.line, batch.tail, batch.cursor)
        state.intake.sources[own.file] = own


def _read(root: Path, name: str) -> float:
    """CPU seconds from bytes to events, with an empty journal that is never written."""
    begin, accepted = time.process_time(), 0
    for batch in _batches(root, name, State()):
        accepted += sum(isinstance(event, ev.ExampleAccepted) for event in intake_events(batch, set()))
    assert accepted, "nothing was learned, so nothing was measured"
    return time.process_time() - begin


async def _journaled(root: Path, name: str) -> float:
    """The same with the journal: lookups, decisions, appends and folding."""
    journal, state = await Journal.open(root / "journal.db"), State()
    begin = time.process_time()
    for batch in _batches(root, name, State()):
        ids = {line.example for line in batch.lines if line.example}
        keys = {one.key for line in batch.lines for one in line.responses}
        lines = inp.LinesRead(
            batch, frozenset(await journal.known(ids)), await journal.learned_by(keys),
            await journal.like([line.signature for line in batch.lines if line.signature]),
        )  # fmt: skip
        for recorded in await journal.append(decide(state, lines, 0).events, 0):
            fold(state, recorded)
    await journal.close()
    return time.process_time() - begin


def _high_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- a daemon -----------------------------------------------------------------------------------------------------


def _daemon(root: Path, files: int) -> dict[str, float]:
    """Status and a fresh line while the backlog is read, and the daemon's CPU time after it."""
    logs, port, chance = root / "logs", driver.free_port(), random.Random(1)
    for number in range(files):
        (logs / f"p{number % 100}").mkdir(parents=True, exist_ok=True)
        (logs / f"p{number % 100}" / f"{number}.jsonl").write_bytes(b"".join(_session(chance, number, TURNS)))
    watch = f'[[watch]]\npath = "{logs}"\nmodels = ["*"]\nsettle_s = 1\n'
    config = driver.config_of(root, root / "no-model", port, log='level = "warning"\n') + watch
    daemon, status_ms, line_s = Daemon(root, config, port, STUB_ENGINE), list[float](), list[float]()
    daemon.start()
    try:
        daemon.wait(lambda s: s["queue"]["pending"] > 0, "to read", poll_s=0.01)
        for number in range(5):
            status_ms += [_status_ms(daemon) for _ in range(4)]
            line_s.append(_line_s(daemon, number))
        turns = TURNS * files
        busy = daemon.status()["queue"]["pending"] < turns
        daemon.wait(lambda s: s["queue"]["pending"] >= turns, "half of the backlog to be read", 1800, poll_s=1)
        _await_rest(daemon)
        assert daemon.process is not None
        time.sleep(IDLE_S / 3)  # remaining work: snapshots, the index
        before = _cpu_s(daemon.process.pid)
        time.sleep(IDLE_S)
        idle = (_cpu_s(daemon.process.pid) - before) / IDLE_S
        quiet_ms = min(_status_ms(daemon) for _ in range(4))
    finally:
        daemon.end()
    return {
        "status_in_backlog_ms": max(status_ms), "status_when_idle_ms": quiet_ms,
        "line_in_backlog_s": max(line_s), "idle_watch_core": idle,
        "backlog_files": files, "backlog_lasted": float(busy),
    }  # fmt: skip


def _await_rest(daemon: Daemon) -> None:
    """Wait until nothing more is accepted: a turn has several answers, each an example of its own."""
    last, now = -1, daemon.status()["queue"]["pending"]
    while last != now:
        time.sleep(REST_S)
        last, now = now, daemon.status()["queue"]["pending"]


def _status_ms(daemon: Daemon) -> float:
    """Milliseconds of `apollod ctl status`, the whole process."""
    begin = time.perf_counter()
    subprocess.run(daemon.command("ctl", "status", "--json"), check=True, capture_output=True, env=daemon.environment())
    return 1000 * (time.perf_counter() - begin)


def _line_s(daemon: Daemon, number: int) -> float:
    """Seconds from putting a file into the inbox to its event."""
    begin = time.perf_counter()
    daemon.drop(f"fresh-{number}.jsonl", json.dumps({"prompt": f"fresh {number}", "completion": "yes"}))
    sql = f"SELECT seq FROM events WHERE kind = 'source.consumed' AND body ->> '$.path' LIKE '%fresh-{number}.jsonl'"
    while not daemon.query(sql):
        if time.perf_counter() - begin > 60:
            break
        time.sleep(0.02)
    return time.perf_counter() - begin


def _cpu_s(pid: int) -> float:
    """User and system time of one process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * CLOCK_TICK_S


# --- logs ---------------------------------------------------------------------------------------------------------


def _write(path: Path, megabytes: int) -> None:
    chance, size, number = random.Random(0), 0, 0
    with path.open("wb") as file:
        while size < megabytes * 1_000_000:
            number += 1
            for line in _session(chance, number, 40):
                size += file.write(line)


_STEMS = ("turn", "ser", "port", "file", "test", "line", "code", "path", "call", "list", "map", "value", "read")
_WORDS = [f"{before}{stem}" for before in ("re", "un", "de", "co", "in", "pre", "sub", "") for stem in _STEMS]


def _text(chance: random.Random, words: int) -> str:
    lines = (" ".join(chance.choices(_WORDS, k=10)) for _ in range(words // 10 + 1))
    return "\n".join(f"{chance.randint(0, 9999)} {line}" for line in lines)


def _session(chance: random.Random, number: int, turns: int) -> Iterator[bytes]:
    """A session as Claude Code writes it: each turn is a prompt, a call of a tool with its result, and an answer."""
    before, count = None, 0

    def line(kind: str, content: object, **message: object) -> bytes:
        nonlocal before, count
        count += 1
        uuid = f"{number:08x}-0000-4000-8000-{count:012x}"
        record = {
            "parentUuid": before, "isSidechain": False, "userType": "external", "cwd": "/home/me/work/project",
            "sessionId": f"{number:08x}-1111-4111-8111-111111111111", "version": "2.1.1", "gitBranch": "main",
            "type": kind, "message": {"role": kind, "content": content, **message}, "uuid": uuid,
            "timestamp": "2026-11-20T12:00:00.000Z",
        }  # fmt: skip
        before = uuid
        return json.dumps(record).encode() + b"\n"

    def answer(blocks: Sequence[object]) -> bytes:
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 1200, "output_tokens": chance.randint(9, 999)}
        return line("assistant", blocks, id=f"msg_{number}_{count}", model="apollo", type="message", usage=usage)

    for turn in range(turns):
        call = f"toolu_{number:08x}{turn:04x}"
        yield line("user", f"{number} {turn} {_text(chance, 30)}")
        yield answer([
            {"type": "text", "text": _text(chance, 40)},
            {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": _text(chance, 20)}},
        ])  # fmt: skip
        yield line("user", [{"type": "tool_result", "tool_use_id": call, "content": _text(chance, 400)}])
        yield answer([{"type": "text", "text": _text(chance, 80)}])


if __name__ == "__main__":
    main()
