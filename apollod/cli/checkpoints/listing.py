"""`apollod checkpoint list|show`: what can be gone back to, as the records say."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apollod.cli import render
from apollod.cli.checkpoints import forms
from apollod.cli.checkpoints.opening import opened, point_of
from apollod.store.entry import RECORD, UNDO, Entry
from apollod.store.history import Held, History


def list_(args: argparse.Namespace) -> int:
    """Every checkpoint in the order of writing, and what the records promise."""
    history = opened(args, 0.0)
    rows, notes = _rows(history), _notes(history)
    if args.json:
        model = {"path": str(history.model_dir), "step": _known(history.model.step),
        "fingerprint": history.model.fingerprint,
                 "problem": history.model.problem}  # fmt: skip
        forms.show_object(
            {
                "checkpoints": rows,
                "model_dir": model,
                "base": str(history.base) if history.base else None,
                "notes": notes,
            }
        )
        return 0
    if not rows:
        print(f"no checkpoints in {history.checkpoints}")
    else:
        columns = ("number", "step", "when", "fingerprint", "bytes", "delta", "full", "state")
        cells = [
            [
                *(row[name] for name in ("number", "step", "at", "fingerprint")),
                *(forms.size(row[name]) for name in ("bytes", "delta_bytes")),
                "yes" if row["full"] else "",
                row["state"],
            ]
            for row in rows
        ]
        print(render.table(columns, cells))
    for note in notes:
        print(f"apollod: {note}", file=sys.stderr)
    return 0


def _rows(history: History) -> list[dict[str, Any]]:
    reachable = history.reachable()
    last = history.held[-1] if history.held else None
    rows = []
    for held in history.held:
        there = held.entry.fingerprint in reachable
        state = (
            "in model directory"
            if held is last and _is_there(history, held)
            else "reachable"
            if there
            else "not reachable"
        )
        rows.append(_row(held, f"damaged, {state}" if held.wrong else state))
    if history.uncommitted:
        rows.append(_row(history.uncommitted, "being written" if history.model.busy else "uncommitted"))
    for broken in history.broken:
        nothing = {
            "number": None,
            "step": None,
            "at": "",
            "fingerprint": "",
            "bytes": None,
            "delta_bytes": None,
            "full": False,
        }
        rows.append(
            {**nothing, "state": f"broken: {broken.path.name}", "path": str(broken.path), "problems": [broken.reason]}
        )
    return rows


def _is_there(history: History, held: Held) -> bool:
    return (history.model.step, history.model.fingerprint) == (held.entry.step, held.entry.fingerprint)


def _row(held: Held, state: str) -> dict[str, Any]:
    entry = held.entry
    return {
        "number": entry.number, "step": entry.step, "at": _when(held.path), "fingerprint": entry.fingerprint,
        "bytes": sum(entry.files.values()), "delta_bytes": entry.files.get(UNDO, 0), "full": entry.full, "state": state,
        "path": str(held.path), "problems": list(held.wrong.values()),
    }  # fmt: skip


def _notes(history: History) -> list[str]:
    notes = list(dict.fromkeys([*history.gaps(), *(reason for held in history.held for reason in held.wrong.values())]))
    if history.uncommitted and not history.model.problem:
        notes.append(
            f"{history.uncommitted.path} is not committed: the model directory is not at step "
            f"{history.uncommitted.entry.step}"
        )
    return notes


def show(args: argparse.Namespace) -> int:
    """Everything that is known of one checkpoint."""
    history = opened(args, 0.0)
    point = point_of(history, args.step)
    ways = [{"from": str(way.copy.path), "deltas": len(way.deltas), "bytes": way.bytes} for way in history.ways(point)]
    body: dict[str, Any] = {"step": point.step, "fingerprint": point.fingerprint}
    if point.held:
        entry, state = point.held.entry, "reachable" if ways else "not reachable"
        row = _row(point.held, "in model directory" if _is_there(history, point.held) else state)
        body = {**row, **_details(entry)}
    problems = [*body.get("problems", []), *([] if ways else [history.unreachable(point).line()])]
    body |= {"ways": ways, "problems": problems}
    if args.json:
        forms.show_object(body)
        return 0
    for name, value in body.items():
        if name not in ("files", "optimizer", "ways", "problems"):
            print(f"{name:<20}{forms.size(value) if name.endswith('bytes') else value}")
    for title in ("optimizer", "files"):
        for name, value in body.get(title, {}).items():
            print(f"{title:<20}{name}: {forms.size(value) if title == 'files' else value}")
    for way in history.ways(point):
        print(f"{'way':<20}from {way.copy.path} over {len(way.deltas)} deltas, {forms.size(way.bytes)}")
    for problem in problems:
        print(f"{'problem':<20}{problem}")
    return 0


def _details(entry: Entry) -> dict[str, Any]:
    return {
        "before_step": entry.before_step,
        "before_fingerprint": entry.before_fingerprint,
        "model": entry.model,
        "torch": entry.torch,
        "state_version": entry.state_version,
        "optimizer": entry.optimizer,
        "files": entry.files,
    }


def _known(step: int) -> int | None:
    return step if step >= 0 else None


def _when(path: Path) -> str:
    """When the checkpoint was written, to the second."""
    try:
        written = (path / RECORD).stat().st_mtime
    except OSError:
        return ""
    return datetime.fromtimestamp(written, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
