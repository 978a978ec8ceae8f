"""`apollod checkpoint export`: a step as a directory of its own."""

import argparse
import sys

from apollod.cli.checkpoints import forms
from apollod.cli.checkpoints.open_history import BUSY_S, other_files
from apollod.cli.checkpoints.opening import opened, point_of
from apollod.store.export import export


def run(args: argparse.Namespace) -> int:
    """Write the weights and the optimizer of a step; 0, or an error."""
    history = opened(args, BUSY_S)
    point = point_of(history, args.step)
    if history.uncommitted and args.step == "latest":
        print(f"apollod: {history.uncommitted.path} is not committed; {point} is the newest that is", file=sys.stderr)
    if not history.ways(point):
        raise history.unreachable(point)
    with forms.Progress("written") as progress:
        done = export(history, point, args.dir.expanduser(), other_files(history), progress)
    for reason in done.failed:
        print(f"apollod: passed over, {reason}", file=sys.stderr)
    if done.optimizer:
        print(f"apollod: without the optimizer: {done.optimizer}", file=sys.stderr)
    if args.json:
        forms.show_object({
            "path": str(done.path), "step": done.step, "fingerprint": done.fingerprint, "bytes": done.bytes,
            "from": str(done.origin),
            "deltas": done.deltas, "optimizer": not done.optimizer, "passed_over": list(done.failed),
        })  # fmt: skip
    else:
        print(f"step {done.step} {done.fingerprint} {done.path}")
        print(f"apollod: {forms.size(done.bytes)}, from {done.origin} over {done.deltas} deltas", file=sys.stderr)
    return 0
