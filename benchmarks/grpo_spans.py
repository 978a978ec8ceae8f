"""What an arm of benchmarks/grpo.py did in which time: spans of sampling and of steps, with their tokens. And
the CPU seconds of its processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import psutil


class Span(NamedTuple):
    """Work from `begin` to `end`, in seconds of the clock of the wall, with so many tokens."""

    begin: float
    end: float
    tokens: float = 0.0


def within(spans: Iterable[Span], window: Span) -> float:
    """Tokens inside the window; a span that crosses its edge counts by its share."""
    return sum(
        one.tokens * max(0.0, min(one.end, window.end) - max(one.begin, window.begin)) / max(1e-9, one.end - one.begin)
        for one in spans
    )


def union(spans: Iterable[Span], window: Span) -> list[Span]:
    """The time inside the window in which there is at least one of the spans, as spans one after the other."""
    found = list[Span]()
    for one in sorted(spans):
        begin, end = max(one.begin, window.begin), min(one.end, window.end)
        if end <= begin:
            continue
        if found and begin <= found[-1].end:
            found[-1] = Span(found[-1].begin, max(found[-1].end, end))
        else:
            found.append(Span(begin, end))
    return found


def seconds(spans: Iterable[Span]) -> float:
    """Their lengths together."""
    return sum(one.end - one.begin for one in spans)


def busy(spans: Iterable[Span], window: Span, without: Sequence[Span] = ()) -> float:
    """Seconds of the window in which there is at least one of the spans, and none of `without`."""
    work = union(spans, window)
    return seconds(work) - sum(seconds(union(without, one)) for one in work)


@dataclass
class Measured:
    """All windows of an arm together. `groups`: learned, as shares of steps; `flat`: groups without anything to
    learn; `copied`: seconds in which weights were copied."""

    seconds: float = 0.0
    sampled: float = 0.0
    trained: float = 0.0
    groups: float = 0.0
    sampling: float = 0.0
    training: float = 0.0
    copied: float = 0.0
    flat: int = 0
    cpu: float = 0.0
    step_s: list[float] = field(default_factory=list)

    def add(
        self, window: Span, sampling: Sequence[Span], steps: Sequence[Span], copies: Sequence[Span] = (),
        paused: Sequence[Span] = (), flat: int = 0, cpu: float = 0.0,
    ) -> None:  # fmt: skip
        """Add a window. `paused`: spans in which the engine let its requests wait."""
        self.seconds += window.end - window.begin
        self.sampled += within(sampling, window)
        self.trained += within(steps, window)
        self.groups += within([one._replace(tokens=1.0) for one in steps], window)
        self.sampling += busy(sampling, window, paused)
        self.training += busy(steps, window)
        self.copied += busy(copies, window)
        self.flat += flat
        self.cpu += cpu
        self.step_s += [one.end - one.begin for one in steps if window.begin <= one.end <= window.end]

    @property
    def rate(self) -> float:
        """Tokens a second, sampled and trained together."""
        return (self.sampled + self.trained) / self.seconds

    def figures(self, name: str) -> dict[str, float]:
        """Figures with the prefix `name`."""
        figures = {
            "tokens_per_s": self.rate, "sampled_per_s": self.sampled / self.seconds,
            "trained_per_s": self.trained / self.seconds, "groups_per_s": self.groups / self.seconds,
            "engine_idle": 1 - self.sampling / self.seconds, "trainer_idle": 1 - self.training / self.seconds,
            "copying": self.copied / self.seconds, "flat": float(self.flat), "seconds": self.seconds,
            "cpu_s_per_group": self.cpu / self.groups if self.groups else 0.0,
            "step_s": sum(self.step_s) / max(1, len(self.step_s)),
        }  # fmt: skip
        return {f"{name}_{what}": value for what, value in figures.items()}


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of those that it started, which live."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)
