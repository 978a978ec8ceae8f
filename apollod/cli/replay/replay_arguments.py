"""What can be said to `apollod replay`. Apart from what runs it, which loads more."""

import argparse

from apollod.cli import config_options, numbers


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        type=numbers.step,
        default=0,
        dest="first",
        metavar="STEP",
        help="a checkpoint's step; default 0: the base model",
    )
    parser.add_argument("--to", type=numbers.step, default=None, metavar="STEP", help="default: what is served")
    parser.add_argument("--out", metavar="DIR", help="write the weights there, as a Hugging Face directory")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="EXAMPLE|LESSON", help="as if these had never been learned"
    )
    config_options.config_file(parser)
    parser.add_argument("--journal", metavar="FILE", help="the journal or a copy of it, instead of --config")
    parser.add_argument(
        "--model", metavar="DIR", help="start from this one: the unchanged base model, or an exported checkpoint"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from apollod.cli.replay import replay_command

    return replay_command.run(args)
