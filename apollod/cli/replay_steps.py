"""Recorded steps run again by a trainer apart from the live one, all of them or without some examples."""

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apollod.adapters.ipc.offline_trainer import OfflineTrainer
from apollod.adapters.journal import blobs
from apollod.cli import render
from apollod.cli.replay_plan import Plan, Planned, Start, device_of, read_record
from apollod.core import events as ev
from apollod.core.events import all_digests, all_examples
from apollod.core.facts.holding import SHORT
from apollod.core.facts.recovery import differing_choice
from apollod.core.facts.training import tokens_bound
from apollod.errors import ReplayError
from apollod.supervisor import memory_budget
from apollod.wire import messages as msg

COMPARED = ("fingerprint", "applied", "skipped_zero", "skipped_nonfinite")


@dataclass
class Result:
    """Result of a replay. `verified_until`: the last step with the recorded bits; `left_out`: steps without examples
    left; `others`: the weights differ on purpose, since examples were left out or the rate was another."""

    fingerprint: str
    verified_until: int
    steps: int = 0
    left_out: list[int] = field(default_factory=list)
    others: bool = False
    divergence: dict[str, Any] | None = None

    @property
    def verified(self) -> bool:
        return self.divergence is None and not self.others


class Replaying:
    """A trainer and its present binding: each step runs with the settings, kernels and threads of its record."""

    def __init__(self, trainer: OfflineTrainer, journal: str, plan: Plan, start: Start) -> None:
        """Bind, and load the weights of `start`. Raises ReplayError if they are not those of the plan's origin."""
        self._trainer, self._journal, self._plan, self._start = trainer, journal, plan, start
        self._bind(plan.bound, plan.settings)
        origin = plan.origin
        if not origin.step and self._here.fingerprint != origin.fingerprint:
            raise ReplayError(
                f"{start.directory} has fingerprint {self._here.fingerprint}, the base model had {origin.fingerprint}",
                "name the unchanged base model with --model DIR, or start from a checkpoint",
            )
        restore = msg.Restore(start.state, start.directory, weights=False, fingerprint=origin.fingerprint)
        self.fingerprint = trainer.ask(restore, msg.Restored).fingerprint

    def run(self, steps: Sequence[Planned], without: Collection[str], after: int) -> Result:
        """Run `steps`, which follow step `after`, up to the first that does not give the recorded bits."""
        *_, result = self.each(steps, without, after)
        return result

    def each(
        self, steps: Sequence[Planned], without: Collection[str], after: int, goes_on: bool = False,
        lr_scale: float = 1.0,
    ) -> Iterator[Result]:  # fmt: skip
        """Run `steps`, and yield the result before the first one and after each, the same object. Ends at the first
        step that does not give the recorded bits, unless it `goes_on`. `lr_scale`: factor of each learning rate."""
        result = Result(self.fingerprint, after, others=lr_scale != 1.0)
        yield result
        for step in steps:
            left = [pair for pair in examples_of(step) if pair[0] not in without]
            result.others |= len(left) < len(examples_of(step))
            if not left or (result.others and not step.completed.applied):  # what wrote nothing then teaches nothing
                result.left_out.append(step.started.step)
            else:
                self._compared(step, left, lr_scale, result)
                render.progress(f"step {result.steps} of {len(steps) - len(result.left_out)}")
            yield result
            if result.divergence is not None and not goes_on:
                break
        if os.isatty(2):
            print(file=sys.stderr)

    def _compared(self, step: Planned, left: Sequence[tuple[str, str]], lr_scale: float, result: Result) -> None:
        """Run a step, and add it to the result: its bits are compared while none before it differ."""
        done = self._step(step, left, lr_scale)
        self.fingerprint = result.fingerprint = done.fingerprint
        result.steps += 1
        if result.others or result.divergence is not None:
            return
        differing = [name for name in COMPARED if getattr(done, name) != getattr(step.completed, name)]
        if differing:
            result.divergence = _divergence(step, done, differing, self._here.versions)
        else:
            result.verified_until = step.started.step

    def keep(self, step: int, directory: Path) -> None:
        """Write weights and optimizer state after `step` to a directory, for `back`. Raises ReplayError."""
        written = self._trainer.ask(msg.WriteCheckpoint(step, str(directory)), msg.CheckpointWritten)
        if written.error:
            raise ReplayError(written.error)
        self._start = Start(str(directory), str(directory) if step else "", str(directory))
        self._kept = (self._bound, self._settings, self.fingerprint)

    def back(self) -> None:
        """Go back to the kept weights. Raises ReplayError if they are not as they were."""
        bound, settings, fingerprint = self._kept
        if self._settings != settings or differing_choice(self._bound.versions, bound.versions):
            self._bind(bound, settings)
        restore = msg.Restore(self._start.state, self._start.directory, weights=True, fingerprint=fingerprint)
        self.fingerprint = self._trainer.ask(restore, msg.Restored).fingerprint
        if self.fingerprint != fingerprint:
            raise ReplayError(
                f"{self._start.directory} gave weights {self.fingerprint}, {fingerprint} were kept there",
                "look at the disk; the next try makes them anew",
            )

    def _step(self, step: Planned, left: Sequence[tuple[str, str]], lr_scale: float) -> msg.StepDone:
        if step.settings != self._settings or differing_choice(self._bound.versions, step.bound.versions):
            self._bind(step.bound, step.settings)
        examples = [msg.StepExample(example, read_record(self._journal, example), digest) for example, digest in left]
        started = step.started
        again = msg.Step(
            started.step, examples, started.lr * lr_scale, blobs.anchors_of(self._journal, started.held), replay=True,
            products=step.bound.products, **started.terms(),
        )  # fmt: skip
        return self._trainer.ask(again, msg.StepDone)

    def _bind(self, bound: ev.TrainerBound, settings: msg.OptimizerSettings) -> None:
        """Bind with the kernels and threads of the recorded steps."""
        directory, device = self._start.directory, device_of(bound)
        again = memory_budget.recomputes(
            Path(directory), settings, most_examples(self._plan), most_tokens(self._plan), device == "cuda"
        )
        kernels: msg.Kernels = "eager" if bound.versions.get("kernels") == "eager" else "auto"
        threads = int(bound.versions.get("threads", "1"))
        attach = msg.AttachCopy(
            directory, bound.held, bound.tied, device, settings, kernels, again, bound.products, threads
        )
        self._here = self._trainer.ask(attach, msg.Bound)
        self._bound, self._settings = bound, settings


def threads_of(plan: Plan) -> str:
    """Largest number of threads of any step: a process can use fewer later, not more."""
    counts = [int(step.bound.versions.get("threads", "1")) for step in plan.steps]
    return str(max([*counts, int(plan.bound.versions.get("threads", "1"))]))


def examples_of(step: Planned) -> list[tuple[str, str]]:
    """(content id, digest of the tokens) of all examples of a step."""
    return list(zip(all_examples(step.started), all_digests(step.started), strict=True))


def most_examples(plan: Plan) -> int:
    """Largest number of examples that one step of the plan learns one after the other."""
    return max((1 if step.started.together else len(examples_of(step)) for step in plan.steps), default=1)


def most_tokens(plan: Plan) -> int:
    """Largest number of tokens of one step of the plan, with its anchors. An estimate: events have neither lengths of
    anchors nor the padding of a batch."""
    return max(map(_tokens, plan.steps), default=1)


def _tokens(step: Planned) -> int:
    filled_up = 2 if step.started.together else 1
    about = filled_up * step.completed.tokens + SHORT * len(step.started.held)
    return min(about, tokens_bound(step.settings.max_tokens, bool(step.started.held)))


def _divergence(step: Planned, done: msg.StepDone, differing: list[str], here: dict[str, str]) -> dict[str, Any]:
    recorded = step.bound.versions
    names = [name for name in {**recorded, **here} if recorded.get(name) != here.get(name)]
    return {
        "step": step.started.step,
        "expected": step.completed.fingerprint,
        "found": done.fingerprint,
        "differing": differing,
        "environment": {name: {"recorded": recorded.get(name, ""), "here": here.get(name, "")} for name in names},
    }


def told(divergence: dict[str, Any], until: int) -> str:
    """Lines for people: the divergence, and each difference from the recorded environment."""
    lines = [
        f"diverged at step {divergence['step']}: expected {divergence['expected']}, found {divergence['found']} "
        f"({', '.join(divergence['differing'])} differ); verified until step {until}"
    ]
    for name, values in divergence["environment"].items():
        lines.append(f"  {name}: {values['recorded'] or 'not recorded'} then, {values['here'] or 'absent'} now")
    if not divergence["environment"]:
        lines.append("  the recorded environment is the one here")
    return "\n".join(lines)
