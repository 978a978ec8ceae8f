"""Measures the cost of dreams besides the model: a cycle, a start with many of them in the journal, and an intake
beside them.

A cycle is a practice that is learned, and the variation that is tested after it. An imagination and a model that answer
at once, over real HTTP in another process; a daemon's loop with its journal on disk; children that start at once and
steps that take no time. `calls_ms`: time between a request to the client and its answer; `checks_ms`: time of the
regular expression, each in a process of its own; `step_appends_ms`: time of the journal for events that a step records
without dreams, too. The overhead is the rest; `appends_ms`: all time of the journal.

Recorded dreams: a journal of 10,000 of them, folded; a start of the real daemon on it and on one without, each from its
snapshot, in turns; and `apollod ctl dream list` (`command_s`: a command of `ctl` that reads nothing). `advance_us`:
time of the loop after each input to choose the next dream. Intake: 10,000 lines, one per input, with 20 settled
patterns and with none, in turns.
"""

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec

from apollod.adapters.journal.writer import Journal
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.openai_api import Completion, Prompt, Sampling
from apollod.adapters.system import log
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.fold import fold
from apollod.core.rules.dreams.policy import advance
from apollod.core.settings import Check, PatternSettings
from apollod.core.state import State
from apollod.curation.dreaming.scenario_text import sketch_of
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor import Executor, dreaming_effects
from apollod.supervisor.loop import Loop
from apollod.testing.daemon import Daemon, config_of, free_port
from apollod.wire.state_snapshot import dump_state, load_state
from benchmarks import report
from benchmarks.scripted import scripted

CYCLES, WARM, RECORDED, LINES, ROUNDS, PATTERNS = 60, 10, 10_000, 10_000, 5, 20
MS_MAX, EVENTS_MAX, SLOWER_MAX, INTAKE_MIN, LIST_S_MAX = 5.0, 20.0, 1.1, 0.95, 0.3
NONE = cast(Any, None)
OF_STEPS = (ev.ExampleEncoded, ev.WindowOpened, ev.StepStarted, ev.StepCompleted, ev.WindowClosed)
PATTERN = PatternSettings(
    name="ask", instruction="Ask before you act.", check=Check(regex="May I"), contrast=("Act at once.",), held_out=4,
    dreams=0, days=0,
)  # fmt: skip

ANSWER = r"""
import random
chance = random.Random(1)
def words(n): return " ".join("".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(n))
def answer(asked):
    if "response_format" in asked:
        said = json.dumps({"messages": [{"role": "user", "content": words(30)}]})
    else:
        told = "Ask before" in asked["messages"][0]["content"]
        said = ("May I " if told else "Done: ") + words(30)
    logprobs = {"content": [{"token": "a", "logprob": -1.0}] * 50}
    return said, ({"logprobs": logprobs} if asked.get("logprobs") else {})
"""


def main() -> None:
    """Measure and print."""
    args = report.parser(__doc__ or "").parse_args()
    log.configure("info", "json")  # like the daemon's log; on stderr
    with scripted(ANSWER) as port, tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        figures = asyncio.run(_cycles(Path(directory), port)) | _starts(Path(directory))
    figures |= _recorded() | _advance_us()
    intake = _intake()
    goals = {
        "overhead_ms": report.goal(figures["overhead_ms"], MS_MAX, at_most=True),
        "events": report.goal(figures["events"], EVENTS_MAX, at_most=True),
        "start_slower": report.goal(figures["start_dreams_s"] / figures["start_none_s"], SLOWER_MAX, at_most=True),
        "list_s": report.goal(figures["list_s"], LIST_S_MAX, at_most=True),
        "intake_beside_settled": report.goal(intake, INTAKE_MIN, at_most=False),
    }
    ratios = {
        "intake_20_settled_to_none": intake,
        "start_with_dreams_to_none": figures["start_dreams_s"] / figures["start_none_s"],
    }
    report.report("dream", figures, ratios, goals, threads=1, as_json=args.json)


# --- a cycle ---------------------------------------------------------------------------------------------------------


class Spent:
    """Seconds so far."""

    calls = checks = appends = steps = cpu = 0.0
    """cpu: CPU time of calls and checks; steps: appends of step events alone"""
    count = of_steps = 0
    """appends"""


class AtOnce(Executor):
    """Children that are up at once and steps that take no time; calls for dreams are made."""

    async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
        return await super().run(effect) if isinstance(effect, dreaming_effects.CALLS) else answers(effect)


def answers(effect: fx.Effect) -> list[inp.Input]:
    """The answers of children that take no time."""
    match effect:
        case fx.SpawnEngine(model_dir=model_dir):
            ready = ev.EngineReady(1, "http://e", "m", "memfd", 3, 3, 0, 0, 0, 100, 1.0, {}, outlives_engine=True)
            return [inp.EngineStarted(1, model_dir), ready]
        case fx.SpawnTrainer():
            return [inp.TrainerStarted(2)]
        case fx.AttachTrainer():
            return [inp.Bound("base", 3, 50, {})]
        case fx.Restore(fingerprint=fingerprint):
            return [inp.Restored(fingerprint, 10)]
        case fx.KeepBase(path=path):
            return [inp.BaseKept(path, "reflink", 1, 0.1)]
        case fx.ProbeTrainer(step=step, number=number):
            return [inp.Probed(step, (1, 2), (-1.0,), seconds=0.01, number=number)]
        case fx.ScoreProbe(step=step, number=number, trainer=trainer):
            return [inp.Scored(step, number, "ids", trainer, (-1.0,), 0.1)]
        case fx.EncodeExamples(examples=examples):
            return [inp.EncodeDone([inp.Encoded(one, 10, 4, 0, one) for one in examples])]
        case fx.RunStep(step=step, replay=replay):
            return [inp.StepDone(step, True, 1.0, 1.0, 1.0, 10, 4, f"f{step}", 0.1, 0, 0, replay)]
    return []


async def _cycles(root: Path, port: int) -> dict[str, float]:
    config = _config(root, port)
    async with _life(config) as loop:
        await _practised(loop, WARM)
        own: dict[str, list[float]] = {
            name: [] for name in ("ms", "overhead_cpu_ms", "calls_ms", "checks_ms", "appends_ms", "step_appends_ms")
        }
        first, appends_before, steps_before = loop.state.seq, Spent.count, Spent.of_steps
        for turn in range(CYCLES // 10):
            calls, checks, appends, steps = Spent.calls, Spent.checks, Spent.appends, Spent.steps
            began, cpu = time.perf_counter(), time.process_time() - Spent.cpu
            await _practised(loop, WARM + 10 * (turn + 1))
            own["ms"].append((time.perf_counter() - began) * 100)
            own["overhead_cpu_ms"].append((time.process_time() - Spent.cpu - cpu) * 100)
            own["calls_ms"].append((Spent.calls - calls) * 100)
            own["checks_ms"].append((Spent.checks - checks) * 100)
            own["appends_ms"].append((Spent.appends - appends) * 100)
            own["step_appends_ms"].append((Spent.steps - steps) * 100)
        events, appends_each = (loop.state.seq - first) / CYCLES, (Spent.count - appends_before) / CYCLES
        step_appends = (Spent.of_steps - steps_before) / CYCLES
    figures = {name: statistics.median(values) for name, values in own.items()}
    model_and_steps = zip(own["ms"], own["calls_ms"], own["checks_ms"], own["step_appends_ms"], strict=True)
    left = [ms - calls - checks - steps for ms, calls, checks, steps in model_and_steps]
    return figures | {
        "overhead_ms": statistics.median(left),
        "events": events,
        "appends": appends_each,
        "step_appends": step_appends,
        "cycles": float(CYCLES),
    }


def _config(root: Path, port: int) -> Config:
    options = [
        "model.path=/m", f"state.dir={root}/state", f"engine.port={port}", "dream.mode=always", "dream.share_max=1.0",
        f"endpoint.m.base_url=http://127.0.0.1:{port}/v1", "endpoint.m.model=m", "dream.endpoint=m",
        "checkpoint.delay_s=1e6", "trainer.align_every=0", 'dream.surroundings=["none"]',
    ]  # fmt: skip
    config = load_config(None, options, {})
    config.state_dir.mkdir()
    return config


@asynccontextmanager
async def _life(config: Config) -> AsyncIterator[Loop]:
    dreamer, journal = Dreamer(config), await Journal.open(config.journal_path)
    _time(dreamer, journal)
    settings = config.settings()
    settings = msgspec.structs.replace(settings, dream=msgspec.structs.replace(settings.dream, pattern=(PATTERN,)))
    try:
        loop = Loop(State(), journal)
        async with anyio.create_task_group() as tasks:
            executor = AtOnce(config, journal, NONE, loop.post, loop.submit, tasks, dreamer=dreamer)
            loop.post(inp.Started(1, "bench", settings, str(config.state_dir)))
            tasks.start_soon(loop.run, executor)
            tasks.start_soon(dreamer.keep_connected)
            yield loop
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()


def _time(dreamer: Dreamer, journal: Journal) -> None:
    """Note the seconds of calls, checks and appends."""
    whole, append = dreaming_effects.check, journal.append
    for llm in (dreamer._own, dreamer._imagination):
        _time_calls(llm)

    async def check(given: Check, scenario: Sequence[Turn], answer: str) -> tuple[bool, str]:
        began, cpu = time.perf_counter(), time.process_time()
        try:
            return await whole(given, scenario, answer)
        finally:
            Spent.checks += time.perf_counter() - began
            Spent.cpu += time.process_time() - cpu

    async def appended(events: list[ev.Event], at_ns: int) -> list[ev.Recorded]:
        began = time.perf_counter()
        try:
            return await append(events, at_ns)
        finally:
            spent_s, of_step = time.perf_counter() - began, isinstance(events[0], OF_STEPS)
            Spent.appends, Spent.count = Spent.appends + spent_s, Spent.count + 1
            Spent.steps, Spent.of_steps = Spent.steps + of_step * spent_s, Spent.of_steps + of_step

    dreaming_effects.check = check  # type: ignore[assignment]
    journal.append = appended  # type: ignore[method-assign]


def _time_calls(llm: HttpLlm) -> None:
    whole = llm.complete

    async def complete(prompt: Prompt, sampling: Sampling) -> Completion:
        began, cpu = time.perf_counter(), time.process_time()
        try:
            return await whole(prompt, sampling)
        finally:
            Spent.calls += time.perf_counter() - began
            Spent.cpu += time.process_time() - cpu

    llm.complete = complete  # type: ignore[method-assign]


async def _practised(loop: Loop, count: int) -> None:
    """Wait until the variation after this many practices was tested."""
    while not (course := loop.state.dreams.courses.get("ask")) or course.practices < count or course.owed:
        await loop.changed()


# --- recorded dreams -------------------------------------------------------------------------------------------------


def recorded(dreams: int) -> list[ev.Recorded]:
    """Events of `dreams` dreams of 10 patterns, half of them practices, half variations."""
    named = [msgspec.structs.replace(PATTERN, name=f"p{number}") for number in range(10)]
    events: list[ev.Event] = [ev.PatternAdded(one, "bench") for one in named]
    for number in range(1, dreams + 1):
        dream, pattern, said = f"d{number}", f"p{number % 10}", f"scenario {number} {number * 2654435761 % 2**32:x}"
        sketch = sketch_of(said)
        purpose: ev.Purpose = "practice" if number % 20 < 10 else "variation"
        events.append(ev.DreamRequested(dream, pattern, purpose))
        events.append(ev.DreamImagined(dream, (Turn("user", said),), sketch, tokens=100))
        if purpose == "practice":
            events.append(ev.DreamAnswered(dream, "told", "an answer", sketch, -1.0, 1, 100))
            events.append(ev.DreamJudged(dream, "good", "regex", example=dream))
            events.append(ev.DreamTrained(dream, dream, number))
        else:
            events.append(ev.DreamTested(dream, pattern, "bare", True, "said", "regex"))
            events.append(ev.DreamTested(dream, pattern, "contrast", True, "said", "regex", contrast="Act at once."))
        events.append(ev.DreamSettled(dream))
    return [ev.Recorded(seq, seq, event) for seq, event in enumerate(events, 1)]


def _starts(root: Path) -> dict[str, float]:
    """The real daemon until it answers, from its snapshot, in turns with and without dreams in the journal; and
    `apollod ctl dream list` beside `apollod ctl version`."""
    lives = {}
    for name, dreams in (("dreams", RECORDED), ("none", 0)):
        (root / name / "state").mkdir(parents=True)
        asyncio.run(_write(root / name / "state" / "journal.db", dreams))
        port = free_port()
        lives[name] = Daemon(root / name, config_of(root / name, root / "no-model", port), port)
    seconds: dict[str, list[float]] = {name: [] for name in (*lives, "list", "command")}
    for turn in range(ROUNDS + 1):
        for name, daemon in lives.items():
            began = time.perf_counter()
            daemon.start()
            daemon.wait(lambda _: True, "to answer", poll_s=0.005)
            seconds[name].append(time.perf_counter() - began)
            if turn and name == "dreams":
                for key, asked in (("list", ["ctl", "dream", "list"]), ("command", ["ctl", "journal", "--help"])):
                    began = time.perf_counter()
                    subprocess.run(daemon.command(*asked), check=True, capture_output=True)
                    seconds[key].append(time.perf_counter() - began)
            daemon.stop()
    return {
        f"{name}_s" if name in ("list", "command") else f"start_{name}_s": min(values[-ROUNDS:])
        for name, values in seconds.items()
    }  # fmt: skip


async def _write(path: Path, dreams: int) -> None:
    """Write a journal that begins with a step of another model, so that the daemon learns nothing."""
    journal = await Journal.open(path)
    events = [one.event for one in recorded(dreams)] if dreams else []
    for at in range(0, len(events), 1000):
        await journal.append(events[at : at + 1000], time.time_ns())
    await journal.close()


def _recorded() -> dict[str, float]:
    """Folding 10,000 dreams; a start from a snapshot with and without them."""
    journal = recorded(RECORDED)
    none = [ev.Recorded(seq, seq, ev.EngineIdle(60.0)) for seq in range(1, len(journal) + 1)]
    folds: dict[str, list[float]] = {"dreams": [], "none": []}
    loads: dict[str, list[float]] = {"dreams": [], "none": []}
    for _ in range(ROUNDS):
        for name, some in (("dreams", journal), ("none", none)):
            state, began = State(), time.process_time()
            for one in some:
                fold(state, one)
            folds[name].append(time.process_time() - began)
            data, began = dump_state(state), time.process_time()
            load_state(data)
            loads[name].append(time.process_time() - began)
    fold_s, load_s = statistics.median(folds["dreams"]), statistics.median(loads["dreams"])
    return {
        "recorded_events": float(len(journal)), "fold_us": fold_s / len(journal) * 1e6, "fold_10000_dreams_s": fold_s,
        "snapshot_load_s": load_s,
    }  # fmt: skip


# --- decisions after every input ---------------------------------------------------------------------------------


def _at_rest(patterns: int, settled: bool) -> State:
    """A state with so many patterns that need no action, or that wait for users to be gone."""
    named = tuple(msgspec.structs.replace(PATTERN, name=f"p{number}") for number in range(patterns))
    settings = load_config(None, ["model.path=/m", "dream.mode=idle"], {}).settings()
    settings = msgspec.structs.replace(settings, dream=msgspec.structs.replace(settings.dream, pattern=named))
    events = decide(State(), inp.Started(1, "bench", settings, "/s"), 1).events
    if settled:
        tests = {"bare": (4, 4), "contrast": (4, 4)}
        events += [ev.PatternSettled(one.name, 1, tests, tests, 9, 9, 9) for one in named]
        events += [ev.PatternCarried(one.name, 9, 9, 9, final=tests, rechecked=patterns) for one in named]
    state = State()
    for seq, event in enumerate(events, 1):
        fold(state, ev.Recorded(seq, 1, event))
    return state


def _advance_us() -> dict[str, float]:
    figures = {}
    for name, state in (
        ("none", _at_rest(0, False)), ("50_settled", _at_rest(50, True)), ("50_waiting", _at_rest(50, False))
    ):  # fmt: skip
        began = time.process_time()
        for _ in range(5000):
            advance(state, 2)
        figures[f"advance_us_{name}"] = (time.process_time() - began) / 5000 * 1e6
    return figures


def _intake() -> float:
    """Lines a CPU second with 20 settled patterns, as a share of the same with none."""
    seconds: dict[int, list[float]] = {0: [], PATTERNS: []}
    for _ in range(ROUNDS):
        for patterns, kept in seconds.items():
            state, began = _at_rest(patterns, True), time.process_time()
            seq = state.seq
            for number in range(LINES):
                line = inp.Line(number=number, example=f"e{number}", record=b"{}")
                batch = inp.Batch("f", "/f", number, number + 1, (line,))
                outcome = decide(state, inp.LinesRead(batch, frozenset()), 2)
                for event in [*outcome.events, *decide(state, inp.Advance(), 2).events]:
                    seq += 1
                    fold(state, ev.Recorded(seq, 2, event))
            kept.append(time.process_time() - began)
    return min(seconds[0]) / min(seconds[PATTERNS])


if __name__ == "__main__":
    main()
