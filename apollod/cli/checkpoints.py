"""`apollod checkpoint`: what can be gone back to, whether it is whole, and a step of it as a directory of its own. Needs no daemon."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apollod.cli import render
from apollod.cli.kept import BUSY_S, open_history, other_files
from apollod.errors import CheckpointError, ConfigError
from apollod.permission import check_permitted
from apollod.store.entry import RECORD, UNDO, Entry
from apollod.store.history import Held, History, Point
from apollod.store.verify import Checked, Verified, verify


def run(args: argparse.Namespace) -> int:
    """Run one verb."""
    match args.verb:
        case "list":
            return _list(args, _open(args, 0.0))
        case "show":
            return _show(args, _open(args, 0.0))
        case "verify":
            return _verify(args, _open(args, BUSY_S))
    return _export(args, _open(args, BUSY_S))


# --- where things are ---------------------------------------------------------------------------------------------


def _open(args: argparse.Namespace, wait_s: float) -> History:
    """The history, if need be after a sync that is at work. Raises ConfigError, NotPermitted or CheckpointError."""
    checkpoints, model_dir, base = _places(args)
    if not model_dir.is_dir():
        raise CheckpointError(f"{model_dir} is no directory", "name the model directory with --model DIR")
    return open_history(checkpoints, model_dir, base, wait_s)


def _places(args: argparse.Namespace) -> tuple[Path, Path, Path]:
    """Directory of the checkpoints, model directory, kept base: what of them is there may be read."""
    checkpoints, model_dir = args.checkpoints, args.model
    if checkpoints is None or model_dir is None:
        if not args.config:
            raise ConfigError("which checkpoints?", "give --config FILE, or --checkpoints DIR and --model DIR, or set APOLLOD_CONFIG")
        from apollod.supervisor.config import load_config

        config = load_config(args.config)
        checkpoints = checkpoints or config.state_dir / "checkpoints"
        model_dir = model_dir or Path(config.model.path)
    model_dir = model_dir.expanduser().absolute()
    base = args.base or checkpoints.absolute().parent / "base" / model_dir.name
    for place in (checkpoints, model_dir, base):
        check_permitted(place, os.R_OK | os.X_OK)
    if args.checkpoints and args.model and not checkpoints.is_dir():
        raise CheckpointError(f"{checkpoints} is no directory", "name the directory that holds the checkpoints")
    return checkpoints, model_dir, base


def _point(history: History, text: str) -> Point:
    if text == "latest":
        if not history.held:
            raise CheckpointError(f"there is no checkpoint in {history.checkpoints}", "`apollod ctl checkpoint` writes one")
        return history.point(history.held[-1].entry)
    if not text.isdecimal():
        raise ConfigError(f"{text!r} is no step", "give a step's number, or latest")
    return history.at_step(int(text))


# --- list and show ------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace, history: History) -> int:
    rows, notes = _rows(history), _notes(history)
    if args.json:
        model = {"path": str(history.model_dir), "step": _known(history.model.step), "fingerprint": history.model.fingerprint,
                 "problem": history.model.problem}  # fmt: skip
        _print({"checkpoints": rows, "model_dir": model, "base": str(history.base) if history.base else None, "notes": notes})
        return 0
    if not rows:
        print(f"no checkpoints in {history.checkpoints}")
    else:
        columns = ("number", "step", "when", "fingerprint", "bytes", "delta", "full", "state")
        cells = [[*(row[name] for name in ("number", "step", "at", "fingerprint")), _size(row["bytes"]), _size(row["delta_bytes"]),
                  "yes" if row["full"] else "", row["state"]] for row in rows]  # fmt: skip
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
        state = "in model directory" if held is last and _is_there(history, held) else "reachable" if there else "not reachable"
        rows.append(_row(held, f"damaged, {state}" if held.wrong else state))
    if history.uncommitted:
        rows.append(_row(history.uncommitted, "being written" if history.model.busy else "uncommitted"))
    for broken in history.broken:
        nothing = {"number": None, "step": None, "at": "", "fingerprint": "", "bytes": None, "delta_bytes": None, "full": False}
        rows.append({**nothing, "state": f"broken: {broken.path.name}", "path": str(broken.path), "problems": [broken.reason]})
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
        notes.append(f"{history.uncommitted.path} is not committed: the model directory is not at step {history.uncommitted.entry.step}")
    return notes


def _show(args: argparse.Namespace, history: History) -> int:
    point = _point(history, args.step)
    ways = [{"from": str(way.copy.path), "deltas": len(way.deltas), "bytes": way.bytes} for way in history.ways(point)]
    body: dict[str, Any] = {"step": point.step, "fingerprint": point.fingerprint}
    if point.held:
        entry, state = point.held.entry, "reachable" if ways else "not reachable"
        row = _row(point.held, "in model directory" if _is_there(history, point.held) else state)
        body = {**row, **_details(entry)}
    problems = [*body.get("problems", []), *([] if ways else [history.unreachable(point).line()])]
    body |= {"ways": ways, "problems": problems}
    if args.json:
        _print(body)
        return 0
    for name, value in body.items():
        if name not in ("files", "optimizer", "ways", "problems"):
            print(f"{name:<20}{_size(value) if name.endswith('bytes') else value}")
    for title in ("optimizer", "files"):
        for name, value in body.get(title, {}).items():
            print(f"{title:<20}{name}: {_size(value) if title == 'files' else value}")
    for way in history.ways(point):
        print(f"{'way':<20}from {way.copy.path} over {len(way.deltas)} deltas, {_size(way.bytes)}")
    for problem in problems:
        print(f"{'problem':<20}{problem}")
    return 0


def _details(entry: Entry) -> dict[str, Any]:
    return {
        "before_step": entry.before_step, "before_fingerprint": entry.before_fingerprint, "model": entry.model, "torch": entry.torch,
        "state_version": entry.state_version, "optimizer": entry.optimizer, "files": entry.files,
    }


# --- verify and export --------------------------------------------------------------------------------------------


def _verify(args: argparse.Namespace, history: History) -> int:
    """Exit code 1 where anything is damaged."""
    with _Progress("checked") as progress:
        result = verify(history, progress)
    if args.json:
        _print(_verified(result))
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
        {"number": one.held.entry.number, "step": one.held.entry.step, "path": str(one.held.path), "reachable": one.reachable,
         "problems": one.problems} for one in result.checkpoints
    ]  # fmt: skip
    return {"ok": result.ok, "checkpoints": rows, "copies": result.copies, "broken": result.broken, "notes": result.notes}


def _export(args: argparse.Namespace, history: History) -> int:
    from apollod.store.export import export

    point = _point(history, args.step)
    if history.uncommitted and args.step == "latest":
        print(f"apollod: {history.uncommitted.path} is not committed; {point} is the newest that is", file=sys.stderr)
    if not history.ways(point):
        raise history.unreachable(point)
    with _Progress("written") as progress:
        done = export(history, point, args.dir.expanduser(), other_files(history), progress)
    for reason in done.failed:
        print(f"apollod: passed over, {reason}", file=sys.stderr)
    if done.optimizer:
        print(f"apollod: without the optimizer: {done.optimizer}", file=sys.stderr)
    if args.json:
        _print({
            "path": str(done.path), "step": done.step, "fingerprint": done.fingerprint, "bytes": done.bytes, "from": str(done.origin),
            "deltas": done.deltas, "optimizer": not done.optimizer, "passed_over": list(done.failed),
        })  # fmt: skip
    else:
        print(f"step {done.step} {done.fingerprint} {done.path}")
        print(f"apollod: {_size(done.bytes)}, from {done.origin} over {done.deltas} deltas", file=sys.stderr)
    return 0


class _Progress:
    """Bytes on stderr, where somebody watches."""

    def __init__(self, word: str) -> None:
        self._word, self._total, self._shown = word, 0, 0.0

    def __enter__(self) -> Callable[[int], None]:
        return self._count

    def __exit__(self, *reason: object) -> None:
        if self._shown:
            print(file=sys.stderr)

    def _count(self, count: int) -> None:
        self._total += count
        if os.isatty(2) and (now := time.monotonic()) - self._shown > 0.2:
            self._shown = now
            print(f"\r{render.size(self._total)} {self._word}   ", end="", file=sys.stderr, flush=True)


def _print(body: dict[str, Any]) -> None:
    print(json.dumps({"schema_version": 1, **body}))


def _size(count: int | None) -> str:
    return "" if count is None else render.size(count)


def _known(step: int) -> int | None:
    return step if step >= 0 else None


def _when(path: Path) -> str:
    """When the checkpoint was written, to the second."""
    try:
        written = (path / RECORD).stat().st_mtime
    except OSError:
        return ""
    return datetime.fromtimestamp(written, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
