"""`apollod demo`; what it does is in `apollod.demo`."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", help="keep the demo's state here (default: a temporary directory)")
    parser.add_argument("--serve", action="store_true", help="leave it running afterwards, to play with")
    parser.add_argument("--port", type=int, default=0, help="port of the engine (default: a free one)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the model and of the run")
    parser.add_argument("--json", action="store_true", help="only the result on standard output, as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """See `apollod.demo.demo.run`."""
    from apollod.cli import render
    from apollod.demo import demo

    return demo.run(args, render.table)
