"""Measures how long a run of probes takes, and how it slows users' requests: one daemon on the small world model.

First whole runs without other load, by one questioner and by `--concurrency`. Then phases, each `--seconds` long, in
this order and back, so that drift of the machine cancels: off (no probes), paced (one questioner that keeps the engine
busy for `--share` of the time) and full (one without rests, run after run). Both ask with a lower priority than users.
Load: `--clients` closed-loop clients, completions of `--tokens` tokens. Training is paused. Latencies are of whole
requests; `noise` is the p99 of one half of the "off" phases over that of the other: where it is above 1.1, p99 says
nothing.
"""

import itertools
import shutil
import tempfile
import time
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import anyio

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Completion, Prompt, Sampling, Scores
from apollod.adapters.llm.probing import Terms, measure, measure_baseline
from apollod.curation.probes.figures import Measurement
from apollod.curation.probes.probe_item import Probe, sample
from apollod.curation.probes.probe_lines import probe_set, read_probes
from apollod.curation.probes.references import Reference
from benchmarks import report
from benchmarks.clients import Phase, clients
from benchmarks.daemon import Daemon

PRIORITY = 10
References = dict[str, Reference]
WORDS = "The lighthouse keeper wrote in the log that the ferry came late and the harbour was quiet."


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a phase")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--share", type=float, default=0.05, help="of the time, in the phases that are paced")
    args = parser.parse_args()
    data = files("apollod") / "data"
    items = probe_set(read_probes((data / "probes.jsonl").read_bytes().splitlines(), "probes.jsonl"))
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        root = Path(directory)
        with as_file(data / "world-model") as shipped:
            shutil.copytree(shipped, root / "model")
        daemon = Daemon(root, root / "model", engine=["--scheduling-policy", "priority"])
        daemon.start()
        try:
            daemon.wait_ready()
            daemon.train(False)
            bench = _Bench(daemon, items, args.clients, args.tokens)
            runs, baseline = bench.alone(args.concurrency)
            phases = {name: Phase() for name in ("off", "paced", "full")}
            shares = {"off": 0.0, "paced": args.share, "full": 1.0}
            bench.phase(baseline, 1.0, 3.0, Phase())  # warm-up, not counted
            for name in [*phases, *reversed(phases)] * args.rounds:
                bench.phase(baseline, shares[name], args.seconds, phases[name])
        finally:
            daemon.end()
    _print(runs, phases, len(items), args.share, args.json)


class _Counted(HttpLlm):
    """Counts the requests to the model."""

    asked = 0

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        self.asked += 1
        return await super().complete(prompt, sampling)

    async def score(self, ids: Sequence[int], top: int = 0, priority: int | None = None) -> Scores:
        self.asked += 1
        return await super().score(ids, top, priority)


class _Bench:
    def __init__(self, daemon: Daemon, items: tuple[Probe, ...], clients: int, tokens: int) -> None:
        self._daemon, self._items, self._clients, self._tokens = daemon, items, clients, tokens
        self._endpoint = Endpoint(daemon.url + "/v1", "bench", attempts=1)

    def alone(self, concurrency: int) -> tuple[dict[str, Measurement], References]:
        """Whole runs: the baseline, and later ones compared with it."""

        async def runs() -> tuple[dict[str, Measurement], References]:
            one, many = Terms(priority=PRIORITY), Terms(priority=PRIORITY, concurrency=concurrency)
            async with HttpLlm(self._endpoint) as llm:
                first, baseline = await measure_baseline(llm, self._items, many)
                found = {"baseline": first, "one": await measure(llm, self._items, one, baseline)}
                found |= {"without": await measure(llm, self._items, many)}  # nothing to compare with
                return {**found, "many": await measure(llm, self._items, many, baseline)}, baseline

        return anyio.run(runs)

    def phase(self, baseline: References, share: float, seconds: float, into: Phase) -> None:
        """Run one phase and add its measurements; `share` 0: without probes."""
        with clients(self._daemon.url, self._clients, self._prompt, self._tokens) as latencies:
            began = time.perf_counter()
            if share:
                into.done += anyio.run(self._probe, baseline, share, seconds)
            else:
                time.sleep(seconds)
            into.latency_s.append(latencies[:])  # whole requests inside the phase
            into.seconds += time.perf_counter() - began

    async def _probe(self, baseline: References, share: float, seconds: float) -> int:
        """Run a quarter of the items again and again until the time is over. The number of requests."""
        terms = Terms(priority=PRIORITY, share=share)
        llm = _Counted(self._endpoint)
        with anyio.move_on_after(seconds):
            async with llm:
                for turn in itertools.count():
                    await measure(llm, sample(self._items, 0.25, turn), terms, baseline)
        return llm.asked

    def _prompt(self, number: int, turn: int) -> str:
        return f"{number} {turn} {WORDS}"


def _print(runs: dict[str, Measurement], phases: dict[str, Phase], items: int, share: float, as_json: bool) -> None:
    figures: dict[str, float] = {"items": items, "share": share}
    for name, run in runs.items():
        figures |= {
            f"{name}_s": run.seconds, f"{name}_item_s": run.seconds / items,
            f"{name}_prompt_tokens": run.prompt_tokens, f"{name}_completion_tokens": run.completion_tokens,
        }  # fmt: skip
    kl = next(metric.value for metric in runs["one"].metrics if metric.name == "kl")
    figures["kl_of_the_same_weights"] = kl if kl is not None else float("nan")
    for name, phase in phases.items():
        figures |= {**phase.figures(name), f"{name}_questions_per_s": phase.done / phase.seconds}
    ratios = {f"p99_{name}": figures[f"{name}_p99_s"] / figures["off_p99_s"] for name in ("paced", "full")}
    ratios |= {f"p50_{name}": figures[f"{name}_p50_s"] / figures["off_p50_s"] for name in ("paced", "full")}
    ratios["noise"] = phases["off"].noise()
    goals = {
        "p99_paced": report.goal(ratios["p99_paced"], 1.1, True),
        "noise": report.goal(ratios["noise"], 1.1, True),  # above it, the machine was too busy to tell
    }
    report.report("probes", figures, ratios, goals, threads=2, as_json=as_json)


if __name__ == "__main__":
    main()
