"""`apollod checkpoint list|show|verify|export`: reads, proves and exports the checkpoints on disk."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apollod.cli import commands, render
from apollod.errors import CheckpointError, ConfigError
from apollod.permission import check_permitted

if TYPE_CHECKING:
    from apollod.store.history import Held, History, Point  # loads numpy, as all of the store that is imported below
    from apollod.store.verify import Verified

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
    parser.set_defaults(run=lambda args: RUNS[args.verb](args))


BUSY_S = 60.0
"""Time to wait for a sync that is at work."""
_IN_PLACE = "in model directory"
_COLUMNS: tuple[render.Column, ...] = (
    "number", "step", ("when", "at"), "fingerprint", ("bytes", lambda row: _size(row["bytes"])),
    ("delta", lambda row: _size(row["delta_bytes"])), ("full", lambda row: "yes" if row["full"] else ""), "state",
)  # fmt: skip


def _list(args: argparse.Namespace) -> int:
    """Print every checkpoint in the order of writing, and the ways that the records promise."""
    history = _opened(args, 0.0)
    rows, notes, model = _rows(history), _notes(history), history.model
    if args.json:
        lies = {"path": str(history.model_dir), "step": model.step if model.step >= 0 else None,
                "fingerprint": model.fingerprint, "problem": model.problem}  # fmt: skip
        base = str(history.base) if history.base else None
        render.print_object({"checkpoints": rows, "model_dir": lies, "base": base, "notes": notes})
        return 0
    print(render.listed(_COLUMNS, rows) if rows else f"no checkpoints in {history.checkpoints}")
    for note in notes:
        print(f"apollod: {note}", file=sys.stderr)
    return 0


def _rows(history: "History") -> list[dict[str, Any]]:
    reachable = history.reachable()
    last = history.held[-1] if history.held else None
    rows = []
    for held in history.held:
        state = "reachable" if held.entry.fingerprint in reachable else "not reachable"
        state = _IN_PLACE if held is last and _is_there(history, held) else state
        rows.append(_row(held, f"damaged, {state}" if held.wrong else state))
    if history.uncommitted:
        rows.append(_row(history.uncommitted, "being written" if history.model.busy else "uncommitted"))
    nothing = {"number": None, "step": None, "at": "", "fingerprint": "", "bytes": None, "delta_bytes": None}
    return rows + [
        nothing | {"full": False, "state": f"broken: {broken.path.name}", "path": str(broken.path),
                   "problems": [broken.reason]}
        for broken in history.broken
    ]  # fmt: skip


def _is_there(history: "History", held: "Held") -> bool:
    return (history.model.step, history.model.fingerprint) == (held.entry.step, held.entry.fingerprint)


def _row(held: "Held", state: str) -> dict[str, Any]:
    from apollod.store.entry import UNDO

    entry = held.entry
    return {
        "number": entry.number, "step": entry.step, "at": _when(held.path), "fingerprint": entry.fingerprint,
        "bytes": sum(entry.files.values()), "delta_bytes": entry.files.get(UNDO, 0), "full": entry.full, "state": state,
        "path": str(held.path), "problems": list(held.wrong.values()),
    }  # fmt: skip


def _notes(history: "History") -> list[str]:
    notes = list(dict.fromkeys([*history.gaps(), *(reason for held in history.held for reason in held.wrong.values())]))
    if history.uncommitted and not history.model.problem:
        notes.append(
            f"{history.uncommitted.path} is not committed: the model directory is not at step "
            f"{history.uncommitted.entry.step}"
        )
    return notes


def _show(args: argparse.Namespace) -> int:
    """Print everything that is known of one checkpoint."""
    history = _opened(args, 0.0)
    point = _point_of(history, args.step)
    found = history.ways(point)
    ways = [{"from": str(way.copy.path), "deltas": len(way.deltas), "bytes": way.bytes} for way in found]
    body: dict[str, Any] = {"step": point.step, "fingerprint": point.fingerprint}
    if point.held:
        entry, state = point.held.entry, "reachable" if ways else "not reachable"
        body = _row(point.held, _IN_PLACE if _is_there(history, point.held) else state) | {
            "before_step": entry.before_step, "before_fingerprint": entry.before_fingerprint, "model": entry.model,
            "torch": entry.torch, "state_version": entry.state_version, "optimizer": entry.optimizer,
            "files": entry.files,
        }  # fmt: skip
    problems = [*body.get("problems", []), *([] if ways else [history.unreachable(point).line()])]
    body |= {"ways": ways, "problems": problems}
    lines = [
        (name, _size(value) if name.endswith("bytes") else value)
        for name, value in body.items()
        if name not in ("files", "optimizer", "ways", "problems")
    ]
    lines += [("optimizer", f"{name}: {value}") for name, value in body.get("optimizer", {}).items()]
    lines += [("files", f"{name}: {_size(value)}") for name, value in body.get("files", {}).items()]
    lines += [("way", f"from {way.copy.path} over {len(way.deltas)} deltas, {_size(way.bytes)}") for way in found]
    lines += [("problem", one) for one in problems]
    return render.show(args, body, [f"{name:<20}{value}" for name, value in lines])


def _when(path: Path) -> str:
    """Time at which the checkpoint was written, UTC, to the second; empty if unknown."""
    from apollod.store.entry import RECORD

    try:
        written = (path / RECORD).stat().st_mtime
    except OSError:
        return ""
    return datetime.fromtimestamp(written, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _verify(args: argparse.Namespace) -> int:
    """Exit code 1 if anything is damaged."""
    from apollod.store.verify import verify

    history = _opened(args, BUSY_S)
    with _progress("checked") as progress:
        result = verify(history, progress)
    if args.json:
        render.print_object(_verified(result))
        return 0 if result.ok else 1
    for one in result.checkpoints:
        still = "; its weights can be had" if one.problems and one.reachable else ""
        print(f"{one.held.path.name}: {'; '.join(one.problems) or 'whole'}{still}")
    for name, problems in result.copies.items():
        print(f"{name}: {'; '.join(problems) or 'whole'}")
    for name, reason in result.broken.items():
        print(f"{Path(name).name}: {reason}")
    for note in result.notes:
        print(f"apollod: {note}", file=sys.stderr)
    whole = sum(not one.problems for one in result.checkpoints)
    print(f"{whole} of {len(result.checkpoints) + len(result.broken)} checkpoints are whole")
    return 0 if result.ok else 1


def _verified(result: "Verified") -> dict[str, Any]:
    rows = [
        {"number": one.held.entry.number, "step": one.held.entry.step, "path": str(one.held.path),
         "reachable": one.reachable, "problems": one.problems} for one in result.checkpoints
    ]  # fmt: skip
    copies, broken, notes = result.copies, result.broken, result.notes
    return {"ok": result.ok, "checkpoints": rows, "copies": copies, "broken": broken, "notes": notes}


def _export(args: argparse.Namespace) -> int:
    """Write the weights and the optimizer of a step; 0, or an error."""
    from apollod.store.export import export

    history = _opened(args, BUSY_S)
    point = _point_of(history, args.step)
    if history.uncommitted and args.step == "latest":
        print(f"apollod: {history.uncommitted.path} is not committed; {point} is the newest that is", file=sys.stderr)
    if not history.ways(point):
        raise history.unreachable(point)
    with _progress("written") as progress:
        done = export(history, point, args.dir.expanduser(), other_files(history), progress)
    for reason in done.failed:
        print(f"apollod: passed over, {reason}", file=sys.stderr)
    if done.optimizer:
        print(f"apollod: without the optimizer: {done.optimizer}", file=sys.stderr)
    if args.json:
        render.print_object({
            "path": str(done.path), "step": done.step, "fingerprint": done.fingerprint, "bytes": done.bytes,
            "from": str(done.origin), "deltas": done.deltas, "optimizer": not done.optimizer,
            "passed_over": list(done.failed),
        })  # fmt: skip
    else:
        print(f"step {done.step} {done.fingerprint} {done.path}")
        print(f"apollod: {_size(done.bytes)}, from {done.origin} over {done.deltas} deltas", file=sys.stderr)
    return 0


def _opened(args: argparse.Namespace, wait_s: float) -> "History":
    """Open the history that the options name. Raises ConfigError, NotPermitted or CheckpointError."""
    checkpoints, model_dir, base = _places(args)
    if not model_dir.is_dir():
        raise CheckpointError(f"{model_dir} is no directory", "name the model directory with --model DIR")
    return open_history(checkpoints, model_dir, base, wait_s)


def _places(args: argparse.Namespace) -> tuple[Path, Path, Path]:
    """Directory of the checkpoints, model directory, kept base. Raises NotPermitted if one may not be read."""
    checkpoints, model_dir = args.checkpoints, args.model
    if checkpoints is None or model_dir is None:
        hint = "give --config FILE, or --checkpoints DIR and --model DIR, or set APOLLOD_CONFIG"
        config = commands.configuration(args, "which checkpoints?", hint)
        checkpoints = checkpoints or config.state_dir / "checkpoints"
        model_dir = model_dir or Path(config.model.path)
    model_dir = model_dir.expanduser().absolute()
    base = args.base or checkpoints.absolute().parent / "base" / model_dir.name
    for place in (checkpoints, model_dir, base):
        check_permitted(place, os.R_OK | os.X_OK)
    if args.checkpoints and args.model and not checkpoints.is_dir():
        raise CheckpointError(f"{checkpoints} is no directory", "name the directory that holds the checkpoints")
    return checkpoints, model_dir, base


def _point_of(history: "History", text: str) -> "Point":
    """The point of a step number, or of the newest checkpoint (`latest`)."""
    if text == "latest":
        if not history.held:
            raise CheckpointError(
                f"there is no checkpoint in {history.checkpoints}", "`apollod ctl checkpoint` writes one"
            )
        return history.point(history.held[-1].entry)
    if not text.isdecimal():
        raise ConfigError(f"{text!r} is no step", "give a step's number, or latest")
    return history.at_step(int(text))


def open_history(checkpoints: Path, model_dir: Path, base: Path | None, wait_s: float = BUSY_S) -> "History":
    """Read the history; waits up to `wait_s` for a sync that is at work. Raises CheckpointError."""
    from apollod.store.history import History

    end = time.monotonic() + wait_s
    while (history := History.read(checkpoints, model_dir, base)).model.busy and time.monotonic() < end:
        time.sleep(0.5)
    return history


def other_files(history: "History") -> list[Path]:
    """Relative paths of the files beside the weights (config, tokenizer) that an export takes along; none of ours."""
    from apollod.adapters.base_model import OTHER_WEIGHTS, WEIGHTS
    from apollod.adapters.system.model_dir import files_below
    from apollod.store.entry import ENTRY

    return [name for name in files_below(history.template, (*OTHER_WEIGHTS, WEIGHTS)) if name.parts[0] != ENTRY]


def _size(count: int | None) -> str:
    """Bytes with a unit; empty if unknown."""
    return "" if count is None else render.size(count)


@contextmanager
def _progress(word: str) -> Iterator[Callable[[int], None]]:
    """A function that counts bytes, which are shown on stderr, if that is a terminal."""
    total, shown = 0, 0.0

    def count(more: int) -> None:
        nonlocal total, shown
        total += more
        if (now := time.monotonic()) - shown > 0.2:
            shown = now
            render.progress(f"{render.size(total)} {word}")

    try:
        yield count
    finally:
        if shown and os.isatty(2):
            print(file=sys.stderr)


RUNS = {"list": _list, "show": _show, "verify": _verify, "export": _export}
