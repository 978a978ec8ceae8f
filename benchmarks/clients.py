"""Users of a daemon in closed loops, and measurements of phases with them."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks import report

Prompt = Callable[[int, int], str]
"""(client's number, its turn from 1) -> prompt: never the same twice, so that no cache answers."""


@dataclass
class Phase:
    """Measurements of the phases of one kind."""

    seconds: float = 0.0
    done: int = 0
    """units of work completed beside the clients"""
    latency_s: list[list[float]] = field(default_factory=list)
    """latencies by phase"""

    @property
    def all_s(self) -> list[float]:
        """Latencies of all phases."""
        return [one for phase in self.latency_s for one in phase]

    def figures(self, name: str) -> dict[str, float]:
        """Requests a second and latencies, with the prefix `name`."""
        return {
            f"{name}_requests_per_s": len(self.all_s) / self.seconds,
            f"{name}_p50_s": report.percentile(self.all_s, 0.5),
            f"{name}_p99_s": report.percentile(self.all_s, 0.99),
        }

    def noise(self) -> float:
        """The ratio of the p99 of both halves of the phases: a measure of the machine's unrest."""
        halves = [
            report.percentile([one for phase in self.latency_s[first::2] for one in phase], 0.99) for first in (0, 1)
        ]
        return max(halves) / min(halves)


@contextmanager
def clients(url: str, count: int, prompt: Prompt, tokens: int) -> Iterator[list[float]]:
    """Run so many clients until the end of the `with`; each requests its next completion of `tokens` tokens after the
    last. Yields the list of seconds per request, which grows as requests end."""
    done, latencies = threading.Event(), list[float]()

    def ask(number: int) -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            body = {
                "model": "bench", "prompt": prompt(number, turn), "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True,
            }  # fmt: skip
            request = urllib.request.Request(
                url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            began = time.perf_counter()
            with urllib.request.urlopen(request, timeout=300) as response:
                response.read()
            latencies.append(time.perf_counter() - began)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield latencies
    finally:
        done.set()
        for thread in threads:
            thread.join()
