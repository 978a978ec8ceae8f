"""`apollod replay`: run recorded steps again in a process of its own and compare every fingerprint with the journal."""

import argparse
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from apollod.cli import commands, render
from apollod.errors import ReplayError

if TYPE_CHECKING:
    from apollod.cli.replay_plan import Plan, Start
    from apollod.cli.replay_steps import Result


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", type=commands.step, default=0, dest="first", metavar="STEP",
        help="a checkpoint's step; default 0: the base model",
    )  # fmt: skip
    parser.add_argument("--to", type=commands.step, default=None, metavar="STEP", help="default: what is served")
    parser.add_argument("--out", metavar="DIR", help="write the weights there, as a Hugging Face directory")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="EXAMPLE|LESSON", help="as if these had never been learned"
    )
    commands.config_file(parser)
    parser.add_argument("--journal", metavar="FILE", help="the journal or a copy of it, instead of --config")
    parser.add_argument(
        "--model", metavar="DIR", help="start from this one: the unchanged base model, or an exported checkpoint"
    )
    commands.as_json(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    """Exit code 0: verified, or rebuilt without some examples; 1: diverged."""
    from apollod.adapters.ipc.offline_trainer import OfflineTrainer
    from apollod.cli.replay_plan import read_plan, start_of
    from apollod.cli.replay_steps import Replaying, threads_of
    from apollod.core.events import all_examples
    from apollod.wire import messages as msg

    journal = _journal(args)
    out = _free(args.out) if args.out else None
    plan = read_plan(journal, args.first, args.to, args.model)
    learned = {example for step in plan.steps for example in all_examples(step.started)}
    without = list(dict.fromkeys(one for each in args.without for one in _meant(journal, each, learned)))
    if unknown := [example for example in without if example not in learned]:
        raise ReplayError(
            f"no step from {plan.origin.step} to {plan.to} learned {unknown[0]}",
            "`apollod ctl query` on the view steps lists examples",
        )
    with start_of(plan.origin) as start, OfflineTrainer(threads_of(plan)) as trainer:
        print(
            render.plain(f"apollod: starting from the weights of step {plan.origin.step}: {start.said}"),
            file=sys.stderr,
        )
        result = Replaying(trainer, journal, plan, start).run(plan.steps, without, plan.origin.step)
        if out is not None and result.divergence is None:
            written = trainer.ask(msg.WriteCheckpoint(plan.to, str(out)), msg.CheckpointWritten)
            if written.error:
                raise ReplayError(written.error)
    _print(args, plan, start, without, result, out)
    return 1 if result.divergence else 0


def _journal(args: argparse.Namespace) -> str:
    if args.journal:
        return str(args.journal)
    hint = "give --config FILE or --journal FILE, or set APOLLOD_CONFIG"
    return str(commands.configuration(args, "which journal?", hint).journal_path)


def _meant(journal: str, what: str, learned: Collection[str]) -> list[str]:
    """The example with this id, or the examples that these steps learned for a lesson. Raises ReplayError if a lesson
    has none."""
    from apollod.cli.control import rows

    if not re.fullmatch(r"[Ll][0-9]{1,18}", what):
        return [what]
    lesson = f"L{int(what[1:])}"
    found = rows.tuples(
        journal,
        f"SELECT body ->> '$.example' FROM events WHERE kind = 'lesson.prepared' AND key = '{lesson}' ORDER BY seq",
    )
    if not (examples := [example for (example,) in found if example in learned]):
        raise ReplayError(f"no step of these learned lesson {lesson}", "`apollod ctl lesson list` shows their steps")
    return examples


def _free(out: str) -> Path:
    """The directory to write, absolute; it must not hold anything yet."""
    path = Path(out).expanduser().absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ReplayError(f"{path} exists already", "give --out a new directory; nothing is overwritten")
    return path


def _print(
    args: argparse.Namespace, plan: "Plan", start: "Start", without: list[str], result: "Result", out: Path | None
) -> None:
    written = str(out) if out is not None and result.divergence is None else None
    body = {
        "verified": result.verified, "from": plan.origin.step, "to": plan.to, "steps": result.steps,
        "fingerprint": result.fingerprint, "out": written, "without": without,
        "verified_until": result.verified_until, "first_divergence": result.divergence, "weights": start.said,
    }  # fmt: skip
    render.show(args, body, lambda: [_sentence(plan, without, result), *([f"written to {written}"] if written else [])])


def _sentence(plan: "Plan", without: list[str], result: "Result") -> str:
    if result.divergence is not None:
        from apollod.cli.replay_steps import told

        return told(result.divergence, result.verified_until)
    if result.others:
        return (
            f"rebuilt {result.steps} of {len(plan.steps)} steps without {len(without)} examples, "
            f"fingerprint {result.fingerprint}; verified until step {result.verified_until}"
        )
    return f"verified {result.steps} steps, fingerprint {result.fingerprint}"
