"""`apollod replay`: run recorded steps again in a process of its own and compare every fingerprint with the journal."""

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apollod.adapters.ipc.offline_trainer import OfflineTrainer
from apollod.cli import render
from apollod.cli.replay.replay_origin import Start, start_of
from apollod.cli.replay.replay_plan import Plan, Planned, device_of, read_plan, read_record
from apollod.core import events as ev
from apollod.core.events import all_examples
from apollod.core.recovery.environment import differing_choice
from apollod.errors import ConfigError, ReplayError
from apollod.supervisor import memory_budget
from apollod.wire import messages as msg

COMPARED = ("fingerprint", "applied", "skipped_zero", "skipped_nonfinite")


@dataclass
class Result:
    """How far it came. `verified_until`: the last step with the recorded bits; `without`: examples left out;
    `left_out`: steps that had nothing else to learn; `others`: the weights are no longer the recorded ones."""

    fingerprint: str
    verified_until: int
    without: list[str]
    steps: int = 0
    left_out: list[int] = field(default_factory=list)
    others: bool = False
    divergence: dict[str, Any] | None = None

    @property
    def verified(self) -> bool:
        return self.divergence is None and not self.others


def run(args: argparse.Namespace) -> int:
    """Exit code 0: verified, or rebuilt without some examples; 1: diverged."""
    journal = _journal(args)
    out = _free(args.out) if args.out else None
    plan = read_plan(journal, args.first, args.to, args.model)
    without = list(dict.fromkeys(args.without))
    learned = {example for step in plan.steps for example in all_examples(step.started)}
    if unknown := [example for example in without if example not in learned]:
        raise ReplayError(
            f"no step from {plan.origin.step} to {plan.to} learned {unknown[0]}",
            "`apollod ctl query` on the view steps lists examples",
        )
    with start_of(plan.origin) as start, OfflineTrainer(_threads(plan)) as trainer:
        print(
            render.plain(f"apollod: starting from the weights of step {plan.origin.step}: {start.said}"),
            file=sys.stderr,
        )
        result = _replay(trainer, journal, plan, start, without)
        if out is not None and result.divergence is None:
            written = trainer.ask(msg.WriteCheckpoint(plan.to, str(out)), msg.CheckpointWritten)
            if written.error:
                raise ReplayError(written.error)
    _print(args, plan, start, result, out)
    return 1 if result.divergence else 0


def _threads(plan: Plan) -> str:
    """As many as any of the steps had: a process can use fewer later, not more."""
    counts = [int(step.bound.versions.get("threads", "1")) for step in plan.steps]
    return str(max([*counts, int(plan.bound.versions.get("threads", "1"))]))


def _journal(args: argparse.Namespace) -> str:
    if args.journal:
        return str(args.journal)
    if not args.config:
        raise ConfigError("which journal?", "give --config FILE or --journal FILE, or set APOLLOD_CONFIG")
    from apollod.supervisor.config import load_config

    return str(load_config(args.config).journal_path)


def _free(out: str) -> Path:
    """The directory to write, absolute; it must not hold anything yet."""
    path = Path(out).expanduser().absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ReplayError(f"{path} exists already", "give --out a new directory; nothing is overwritten")
    return path


def _replay(trainer: OfflineTrainer, journal: str, plan: Plan, start: Start, without: list[str]) -> Result:
    """All steps, or those up to the first that does not give the recorded bits."""
    origin, settings = plan.origin, plan.settings
    here, runs_on = trainer.ask(_attach(plan, plan.bound, start, settings), msg.Bound), plan.bound.versions
    if not origin.step and here.fingerprint != origin.fingerprint:
        raise ReplayError(
            f"{start.directory} has fingerprint {here.fingerprint}, the base model had {origin.fingerprint}",
            "name the unchanged base model with --model DIR, or start from a checkpoint",
        )
    restore = msg.Restore(path=start.state, model_dir=start.directory, weights=False, fingerprint=origin.fingerprint)
    restored = trainer.ask(restore, msg.Restored)
    result = Result(restored.fingerprint, origin.step, without)
    for step in plan.steps:
        number = step.started.step
        left = [pair for pair in _examples(step) if pair[0] not in without]
        result.others |= len(left) < len(_examples(step))
        if not left or (result.others and not step.completed.applied):  # what wrote nothing then teaches nothing now
            result.left_out.append(number)
            continue
        if step.settings != settings or differing_choice(runs_on, step.bound.versions):
            settings, runs_on = step.settings, step.bound.versions
            here = trainer.ask(_attach(plan, step.bound, start, settings), msg.Bound)
        examples = [msg.StepExample(example, read_record(journal, example), digest) for example, digest in left]
        again = msg.Step(
            number, examples, step.started.lr, step.started.loss_limit, replay=True, objective=step.started.objective,
            products=step.bound.products, again_of=step.started.again_of,
        )  # fmt: skip
        done = trainer.ask(again, msg.StepDone)
        result.fingerprint, result.steps = done.fingerprint, result.steps + 1
        _progress(result.steps, len(plan.steps) - len(result.left_out))
        if result.others:
            continue  # other weights than the recorded ones: nothing to compare with
        differing = [name for name in COMPARED if getattr(done, name) != getattr(step.completed, name)]
        if differing:
            result.divergence = _divergence(step, done, differing, here.versions)
            break
        result.verified_until = number
    if os.isatty(2):
        print(file=sys.stderr)
    return result


def _examples(step: Planned) -> list[tuple[str, str]]:
    """(content id, digest of the tokens) of all that a step learned."""
    return list(zip(all_examples(step.started), step.started.digests or (step.started.digest,), strict=True))


def _attach(plan: Plan, bound: ev.TrainerBound, start: Start, settings: msg.OptimizerSettings) -> msg.AttachCopy:
    """With the kernels and the threads that steps of this binding were made with."""
    device = device_of(bound)
    most = max((len(_examples(step)) for step in plan.steps), default=1)
    again = memory_budget.recomputes(Path(start.directory), settings, most, device == "cuda")
    kernels: msg.Kernels = "eager" if bound.versions.get("kernels") == "eager" else "auto"
    threads = int(bound.versions.get("threads", "1"))
    return msg.AttachCopy(
        start.directory, bound.held, bound.tied, device, settings, kernels, again, bound.products, threads
    )


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


def _progress(done: int, total: int) -> None:
    if os.isatty(2):
        print(f"\rstep {done} of {total}", end="", file=sys.stderr, flush=True)


def _print(args: argparse.Namespace, plan: Plan, start: Start, result: Result, out: Path | None) -> None:
    written = str(out) if out is not None and result.divergence is None else None
    if args.json:
        body = {
            "schema_version": 1, "verified": result.verified, "from": plan.origin.step, "to": plan.to,
            "steps": result.steps,
            "fingerprint": result.fingerprint, "out": written, "without": result.without,
            "verified_until": result.verified_until, "first_divergence": result.divergence, "weights": start.said,
        }  # fmt: skip
        print(json.dumps(body))
        return
    if result.divergence is not None:
        print(render.plain(_told(result.divergence, result.verified_until)))
    elif result.others:
        print(
            f"rebuilt {result.steps} of {len(plan.steps)} steps without {len(result.without)} examples, "
            f"fingerprint {result.fingerprint}; verified until step {result.verified_until}"
        )
    else:
        print(f"verified {result.steps} steps, fingerprint {result.fingerprint}")
    if written:
        print(f"written to {written}")


def _told(divergence: dict[str, Any], until: int) -> str:
    lines = [
        f"diverged at step {divergence['step']}: expected {divergence['expected']}, found {divergence['found']} "
        f"({', '.join(divergence['differing'])} differ); verified until step {until}"
    ]
    for name, values in divergence["environment"].items():
        lines.append(f"  {name}: {values['recorded'] or 'not recorded'} then, {values['here'] or 'absent'} now")
    if not divergence["environment"]:
        lines.append("  the recorded environment is the one here")
    return "\n".join(lines)
