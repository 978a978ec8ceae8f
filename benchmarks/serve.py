"""Measures serving with training off and on, and training with serving off and on, in one run on one daemon.

Phases, in this order, each `--seconds` long: serve alone, train alone, both, and again in reverse order (the second
half cancels drift). Load: `--clients` closed-loop clients, streaming completions of `--tokens` tokens. Training: a
queue that never empties, one step per example. Requests/s, time to first token, time per token, steps/s.
"""

import json
import queue
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.daemon import Daemon, build_model

PROMPT_WORDS = "The lighthouse keeper wrote in the log that the ferry came late and the harbour was quiet. "
EXAMPLES_A_LINE = 60


@dataclass
class Phase:
    """Measurements of one phase."""

    seconds: float = 0.0
    requests: int = 0
    steps: int = 0
    first_token_s: list[float] = field(default_factory=list)
    per_token_s: list[float] = field(default_factory=list)


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a phase")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        root = Path(directory)
        daemon = Daemon(root, build_model(root / "model", "demo"), "lr = 1e-5\n")
        daemon.start()
        daemon.wait_ready()
        bench = _Bench(daemon, args.clients, args.tokens, args.seconds)
        bench.phase(serve=True, train=True, seconds=3.0)  # warm-up, not counted
        order = [("serve", True, False), ("train", False, True), ("both", True, True)]
        phases = {name: Phase() for name, _, _ in order}
        for name, serve, train in order + order[::-1]:
            bench.phase(serve, train, args.seconds, phases[name])
        daemon.stop()
    _print(phases, args.json)


class _Bench:
    def __init__(self, daemon: Daemon, clients: int, tokens: int, seconds: float) -> None:
        self._daemon = daemon
        self._clients = clients
        self._tokens = tokens
        self._serial = 0

    def phase(self, serve: bool, train: bool, seconds: float, into: Phase | None = None) -> None:
        """Run one phase and add its measurements."""
        into = into if into is not None else Phase()
        if train:
            self._feed(int(seconds * 40) + 40)
        self._daemon.train(train)
        if not train:
            self._daemon.wait(lambda s: s["state"] == "paused", "to pause")
        done = threading.Event()
        results: queue.Queue[tuple[float, float]] = queue.Queue()
        threads = [
            threading.Thread(target=self._client, args=(i, done, results)) for i in range(self._clients if serve else 0)
        ]
        before, began = self._daemon.status(), time.perf_counter()
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        done.set()
        after, elapsed = self._daemon.status(), time.perf_counter() - began
        counted = results.qsize()  # whole requests inside the phase
        for thread in threads:
            thread.join()
        into.seconds += elapsed
        into.requests += counted
        into.steps += after["step"] - before["step"]
        if train and not after["queue"]["pending"]:
            raise SystemExit("the queue ran empty: the phase did not measure training")
        while not results.empty():
            first, each = results.get()
            into.first_token_s.append(first)
            into.per_token_s.append(each)

    def _feed(self, count: int) -> None:
        pending = self._daemon.status()["queue"]["pending"]
        lines = []
        for _ in range(max(0, count - pending)):
            self._serial += 1
            text = f"{self._serial}: " + PROMPT_WORDS * (EXAMPLES_A_LINE // 15)
            lines.append(
                json.dumps(
                    {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": PROMPT_WORDS}]}
                )
            )
        if lines:
            self._daemon.submit(*lines)

    def _client(self, number: int, done: threading.Event, results: "queue.Queue[tuple[float, float]]") -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            body = {
                "model": "bench",
                "prompt": f"{number} {turn} {PROMPT_WORDS}",
                "max_tokens": self._tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
            }
            request = urllib.request.Request(
                self._daemon.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            began = time.perf_counter()
            first = 0.0
            with urllib.request.urlopen(request, timeout=300) as response:
                for line in response:
                    if line.startswith(b"data:") and not first:
                        first = time.perf_counter() - began
            total = time.perf_counter() - began
            results.put((first, (total - first) / max(1, self._tokens - 1)))


def _print(phases: dict[str, Phase], as_json: bool) -> None:
    serve, train, both = phases["serve"], phases["train"], phases["both"]
    figures = {}
    for name, phase in (("training_off", serve), ("training_on", both)):
        figures |= {
            f"{name}_requests_per_s": phase.requests / phase.seconds,
            f"{name}_first_token_p50_s": report.percentile(phase.first_token_s, 0.5),
            f"{name}_first_token_p99_s": report.percentile(phase.first_token_s, 0.99),
            f"{name}_per_token_p50_s": report.percentile(phase.per_token_s, 0.5),
            f"{name}_per_token_p99_s": report.percentile(phase.per_token_s, 0.99),
        }
    figures |= {
        "serving_off_steps_per_s": train.steps / train.seconds,
        "serving_on_steps_per_s": both.steps / both.seconds,
    }
    served = figures["training_on_requests_per_s"] / figures["training_off_requests_per_s"]
    trained = figures["serving_on_steps_per_s"] / figures["serving_off_steps_per_s"]
    report.report(
        "serve",
        figures,
        {"serving_kept": served, "training_kept": trained},
        {"serving_kept": report.goal(served, 0.6, False), "training_kept": report.goal(trained, 0.5, False)},
        threads=2,
        as_json=as_json,
    )


if __name__ == "__main__":
    main()
