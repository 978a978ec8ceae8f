"""Arguments of `apollod checkpoint`; `checkpoint_history`, which runs it, loads numpy."""

import argparse
from pathlib import Path

from apollod.cli import commands

DESCRIPTION = """\
Every checkpoint brings the model directory up to date and keeps, in <state>/checkpoints, the optimizer and a small
delta back to the weights before. So the weights of each of them can be rebuilt: from the model directory backwards,
from the kept base forwards, or from a full one. These commands read and prove that; they write nothing but the
directory of an export, and a daemon may run meanwhile."""

EPILOG = """\
examples:
  apollod checkpoint list --config apollod.toml          what can be gone back to
  apollod checkpoint verify                              read everything, apply every delta, compare every fingerprint
  apollod checkpoint show latest                         one of them in full
  apollod checkpoint export ~/step-120 --step 120        the weights of step 120, for any tool; with the optimizer, for
                                                         `apollod replay --from 120 --model ~/step-120`
  apollod checkpoint list --checkpoints DIR --model DIR  without a configuration

To serve an earlier step at once, in the running daemon: `apollod ctl rollback --to STEP`.
Exit codes: 0 done, 1 damaged or failed, 2 wrong usage, 4 not permitted."""


def add(parser: argparse.ArgumentParser) -> None:
    """Verbs and options; shared by all verbs: where the checkpoints are."""
    commands.epilog(parser, EPILOG, DESCRIPTION)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text)
        commands.config_file(sub)
        for option, what in (
            ("--checkpoints", "directory of the checkpoints, instead of --config"),
            ("--model", "the model directory, instead of --config"),
            ("--base", "the weights before the first step (default: where the daemon kept them)"),
        ):
            sub.add_argument(option, metavar="DIR", type=Path, help=what)
        commands.as_json(sub)
        return sub

    verb("list", "all checkpoints in the order of writing, and whether their records promise a way to the weights")
    verb("verify", "prove every checkpoint: files, deltas, optimizer, and the fingerprint of its weights")
    show = verb("show", "everything that is known of one checkpoint")
    show.add_argument("step", metavar="STEP|latest", help="of several with this step, after a rollback, the newest")
    export = verb(
        "export", "write the weights and the optimizer of a step as a Hugging Face directory that any tool loads"
    )
    export.add_argument("dir", metavar="DIR", type=Path, help="a new directory; it is there whole, or not at all")
    export.add_argument(
        "--step", metavar="STEP|latest", required=True, help="of several the newest; 0: the untrained weights"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from apollod.cli import checkpoint_history

    return checkpoint_history.RUNS[args.verb](args)
