"""`apollod checkpoint verify`: is all of it whole?"""

import argparse
import sys
from pathlib import Path
from typing import Any

from apollod.cli.checkpoints import forms
from apollod.cli.checkpoints.open_history import BUSY_S
from apollod.cli.checkpoints.opening import opened
from apollod.store.verify import Checked, Verified, verify


def run(args: argparse.Namespace) -> int:
    """Exit code 1 if anything is damaged."""
    history = opened(args, BUSY_S)
    with forms.Progress("checked") as progress:
        result = verify(history, progress)
    if args.json:
        forms.show_object(_verified(result))
        return 0 if result.ok else 1
    for one in result.checkpoints:
        print(f"{one.held.path.name}: {'; '.join(one.problems) or 'whole'}{_still(one)}")
    for name, problems in result.copies.items():
        print(f"{name}: {'; '.join(problems) or 'whole'}")
    for name, reason in result.broken.items():
        print(f"{Path(name).name}: {reason}")
    for note in result.notes:
        print(f"apollod: {note}", file=sys.stderr)
    whole = sum(not one.problems for one in result.checkpoints)
    print(f"{whole} of {len(result.checkpoints) + len(result.broken)} checkpoints are whole")
    return 0 if result.ok else 1


def _still(one: Checked) -> str:
    return "; its weights can be had" if one.problems and one.reachable else ""


def _verified(result: Verified) -> dict[str, Any]:
    rows = [
        {"number": one.held.entry.number, "step": one.held.entry.step, "path": str(one.held.path),
        "reachable": one.reachable,
         "problems": one.problems} for one in result.checkpoints
    ]  # fmt: skip
    return {
        "ok": result.ok,
        "checkpoints": rows,
        "copies": result.copies,
        "broken": result.broken,
        "notes": result.notes,
    }
