"""Measures the cost of a judged example besides the model: its events, the journal, the question, and processing the
answer.

A judge that answers at once, over real HTTP in another process, and a daemon's loop with its journal on disk, without
children. Examples come in batches as from a file, one request each, and all are called good; planted cases come among
them as often as by default. `call_ms`: time between a question to the client and its answer; the overhead is the rest.
In turns with them the same client makes the same requests and nothing else (`request_ms`). `cpu_ms` and
`request_cpu_ms` are processor time of this process. `append_ms` is one durable append of the loop, of which a judged
example needs one, its verdict with the next intent: it shows a slow disk.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec

from apollod.adapters.journal.writer import Journal
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Completion, Prompt, Sampling
from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.adapters.system import log
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.state import State
from apollod.curation.judge_question import SCHEMA, question_about
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.executor import Executor
from apollod.supervisor.judge import Judge
from apollod.supervisor.loop import Loop
from benchmarks import report
from benchmarks.scripted import scripted

TIMED = ("ms", "call_ms", "cpu_ms", "request_ms", "request_cpu_ms")
ROUNDS, EXAMPLES, APPENDS = 5, 200, 100
MS_MAX, EVENTS_MAX = 2.0, 8.0
NONE = cast(Any, None)

ANSWER = r"""
from apollod.curation.judge_question import question_about
from apollod.supervisor.judge import planted_cases
RIGHT = {question_about(c.canonical).messages[1]["content"]: c.planted.expected for c in planted_cases(())}
JUDGED = re.compile(r"to be judged\n(.*?)\n--- ", re.DOTALL)
def answer(asked):
    transcript = asked["messages"][1]["content"]
    quote = JUDGED.findall(transcript)[-1].splitlines()[0]
    verdict = {"quote": quote, "reason": "It does what was asked.", "verdict": RIGHT.get(transcript, "good"),
               "better": None}
    return json.dumps(verdict), {}
"""


class OnlyTheJudge(Executor):
    """An executor without children: approved examples wait to be learned."""

    async def run(self, effect: fx.Effect) -> Any:
        return await super().run(effect) if isinstance(effect, fx.AskJudge) else ()


def main() -> None:
    """Measure and print."""
    args = report.parser(__doc__ or "").parse_args()
    log.configure("info", "json")  # like the daemon's log; on stderr
    with scripted(ANSWER) as port, tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        figures = asyncio.run(_measure(Path(directory), f"http://127.0.0.1:{port}/v1"))
    overhead = figures["ms"] - figures["call_ms"]
    figures["overhead_ms"] = overhead
    goals = {
        "overhead_ms": report.goal(overhead, MS_MAX, at_most=True),
        "events": report.goal(figures["events"], EVENTS_MAX, at_most=True),
    }
    ratios = {"judged_to_bare_request": figures["ms"] / figures["request_ms"]}
    report.report("judge", figures, ratios, goals, threads=1, as_json=args.json)


async def _measure(root: Path, url: str) -> dict[str, float]:
    options = ["model.path=/m", f"state.dir={root}/state", "judge.mode=all", "judge.endpoint=m"]
    options += [f"endpoint.m.base_url={url}", "endpoint.m.model=m", "judge.votes=1"]
    config = load_config(None, options, {})
    config.state_dir.mkdir()
    own: dict[str, list[float]] = {name: [] for name in (*TIMED, "append_ms")}
    spent: list[float] = []
    async with _life(config, spent) as loop, HttpLlm(Endpoint(url, "m")) as llm:
        await _until(loop, lambda state: state.judging.ready and not state.judging.due)
        first = loop.state.seq
        for turn in range(ROUNDS):
            batch = _batch(config, turn)
            before = loop.state.judging.turn
            _spent(spent)
            with _timed(own["ms"], own["cpu_ms"]):
                await loop.submit(inp.LinesRead(batch, frozenset()))
                await _until(loop, lambda state: not state.judging.waiting and not state.judging.open)
            own["call_ms"].append(_spent(spent))
            cases = loop.state.judging.turn - before
            asked = [line.record for line in (*batch.lines, *batch.lines[:cases])]
            with _timed(own["request_ms"], own["request_cpu_ms"]):
                for record in asked:
                    await llm.complete(question_about(record).messages, Sampling(max_tokens=64, schema=SCHEMA))
        events = loop.state.seq - first
        for number in range(APPENDS):
            began = time.perf_counter()
            await loop.submit(inp.TrainingResumed("b") if number % 2 else inp.TrainingPaused("b"))
            own["append_ms"].append((time.perf_counter() - began) * 1e3)
    return {name: statistics.median(values) for name, values in own.items()} | {
        "events": events / (ROUNDS * EXAMPLES), "examples": float(ROUNDS * EXAMPLES)
    }  # fmt: skip


@contextmanager
def _timed(wall_ms: list[float], cpu_ms: list[float]) -> Iterator[None]:
    """Record milliseconds per example."""
    began, cpu = time.perf_counter(), time.process_time()
    yield
    wall_ms.append((time.perf_counter() - began) / EXAMPLES * 1e3)
    cpu_ms.append((time.process_time() - cpu) / EXAMPLES * 1e3)


def _spent(spent: list[float]) -> float:
    """Milliseconds per example spent in questions since the last call."""
    total = sum(spent) / EXAMPLES * 1e3
    spent.clear()
    return total


class TimedLlm(HttpLlm):
    """Records the seconds of each question."""

    def __init__(self, endpoint: Endpoint, spent: list[float]) -> None:
        super().__init__(endpoint)
        self._spent = spent

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        began = time.perf_counter()
        try:
            return await super().complete(prompt, sampling)
        finally:
            self._spent.append(time.perf_counter() - began)


@asynccontextmanager
async def _life(config: Config, spent: list[float]) -> AsyncIterator[Loop]:
    judge, journal = Judge(config), await Journal.open(config.journal_path)
    judge._llm = TimedLlm(judge._endpoint, spent)
    try:
        loop = Loop(State(), journal)
        async with anyio.create_task_group() as tasks:
            executor = OnlyTheJudge(config, journal, NONE, loop.post, loop.submit, tasks, judge)
            loop.post(inp.Started(1, "bench", config.settings(), str(config.state_dir), judge=judge.configured()))
            tasks.start_soon(loop.run, executor)
            tasks.start_soon(judge.keep_connected)
            yield loop
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()


async def _until(loop: Loop, what: Callable[[State], object]) -> None:
    while not what(loop.state):
        await loop.changed()


def _batch(config: Config, turn: int) -> inp.Batch:
    """Conversations of 300 words, as from a file."""
    lines = []
    for number in range(EXAMPLES):
        turns = [
            {"role": "user", "content": f"Question {turn}.{number}: " + " ".join(["why is it so"] * 20)},
            {"role": "assistant", "content": f"Answer {turn}.{number} " + " ".join(["because of that"] * 70)},
        ]
        lines.append(json.dumps({"messages": turns}).encode())
    batch = batch_of_lines(lines, f"file{turn}", config.state_dir / "quarantine")
    return msgspec.structs.replace(batch, tier="bulk")


if __name__ == "__main__":
    main()
