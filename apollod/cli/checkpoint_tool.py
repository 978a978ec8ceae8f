"""`apollo-checkpoint`: the weight files of a model directory, without a daemon or from a running one."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apollod.cli import commands, render
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, SyncError
from apollod.explain import explain
from apollod.permission import check_permitted
from apollod.store.access import DAEMON, OURS

DESCRIPTION = """\
Bring the *.safetensors of a model directory up to date so that no crash and no power cut can tear them, finish what
a crash left, and say exactly which weights lie there."""

EPILOG = """\
examples:
  apollo-checkpoint sync --model-dir /models/m                             the live weights of the daemon that serves m
  apollo-checkpoint sync --model-dir /models/m --from-dir /models/m-new    make m hold the weights of m-new
  apollo-checkpoint recover --model-dir /models/m                          after a crash; safe at any time, also twice
  apollo-checkpoint fingerprint --model-dir /models/m                      16 hex digits, the same on every machine

Only changed blocks are written where they are few, a new file where they are many; all shards change at one moment.
What belongs to this lies in /models/m/.apollod, hidden from other tools.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 4 not permitted."""


def build_parser() -> argparse.ArgumentParser:
    """Parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="apollo-checkpoint")
    commands.epilog(parser, EPILOG, DESCRIPTION)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    sync = _verb(
        verbs, "sync", "write new weights into the directory; names, layout and all other files stay as they are"
    )
    sync.add_argument(
        "--from-dir", metavar="NEW",
        help="directory of the same model with the new weights, may be sharded differently; without it: the live "
        "weights of the daemon",
    )  # fmt: skip
    sync.add_argument(
        "--step", type=int, default=0, help="with --from-dir: number of the new weights, kept beside them (default 0)"
    )
    sync.add_argument(
        "--accept-edits", action="store_true",
        help="with --from-dir: also where the files were changed since the last sync",
    )  # fmt: skip
    sync.add_argument(
        "--config", metavar="FILE", help="the daemon's TOML file (default: the daemon that noted itself in PATH)"
    )
    _verb(verbs, "recover", "finish a sync that was committed before a crash, drop one that was not")
    exact = "the number that identifies the weights exactly; the daemon and its events show the same one"
    _verb(verbs, "fingerprint", exact)
    return parser


def _verb(verbs: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--model-dir", metavar="PATH", required=True, type=Path, help="a local Hugging Face directory, yours to write"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = build_parser().parse_args(argv)
    try:
        match args.verb:
            case "sync":
                return _sync(args)
            case "recover":
                return _recover(args)
        return _fingerprint(args)
    except (ApolloError, OSError) as error:
        failure = explain(error, args.verb, args.model_dir)
    except KeyboardInterrupt:
        return 130
    _failed(args, failure)
    return commands.code_of(failure)


def _sync(args: argparse.Namespace) -> int:
    if not args.from_dir:
        return _sync_live(args)
    from apollod.store.model_files import read_files
    from apollod.store.pieces import directory_pieces
    from apollod.store.sync import sync

    source = Path(args.from_dir)
    if source.resolve() == args.model_dir.resolve():
        raise ConfigError(
            f"{source} is the model directory itself", "give --from-dir the directory with the new weights"
        )
    _check_permitted(args.model_dir, os.R_OK | os.W_OK)
    _check_permitted(source, os.R_OK)
    pieces = directory_pieces(source, read_files(args.model_dir))
    done = sync(args.model_dir, pieces, args.step, args.accept_edits)
    lines = [
        f"sync {done.generation}, step {done.step}: {done.changed_blocks} of {done.blocks} blocks changed, "
        f"{done.bytes_written} bytes written",
        *(f"  {file.name}: {_HOW[file.how]}" for file in done.files),
    ]
    return render.show(args, dataclasses.asdict(done), lines)


def _sync_live(args: argparse.Namespace) -> int:
    """Have the daemon that serves the directory write a checkpoint. Raises ConfigError if it serves another one."""
    from apollod.adapters.ipc.channel import ask
    from apollod.cli.control.ctl import CHECKPOINT_TIMEOUT_S, status
    from apollod.wire import messages as msg

    if args.accept_edits or args.step:
        raise ConfigError(
            "--step and --accept-edits are for --from-dir", "leave them out: a daemon knows the step of its weights"
        )
    if not args.model_dir.is_dir():
        raise ConfigError(f"{args.model_dir} is no directory", "give the model directory that the daemon serves")
    socket = _daemon_of(args)
    try:
        _check_serves(socket, status(socket).engine.path, args.model_dir)
        answer = ask(socket, msg.CheckpointRequest(), CHECKPOINT_TIMEOUT_S)
    except DaemonUnreachable as error:
        raise DaemonUnreachable(f"no daemon answers for {args.model_dir} ({error})", _NO_DAEMON) from error
    return render.show(args, answer, [f"step {answer['step']} {answer['fingerprint']} {args.model_dir}"])


_NO_DAEMON = (
    "start it with `apollod run`, name another with --config FILE, or give --from-dir NEW: a directory with the "
    "new weights"
)


def _daemon_of(args: argparse.Namespace) -> str:
    """Control socket of the daemon: as configured, or as it noted in the directory. Raises DaemonUnreachable."""
    if not args.config:
        try:
            noted: str = (args.model_dir / DAEMON).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            noted = ""
        if noted:
            return noted
    config = args.config or os.environ.get("APOLLOD_CONFIG")
    if not config:
        raise DaemonUnreachable(
            f"no daemon serves {args.model_dir} ({args.model_dir / DAEMON} is not there)", _NO_DAEMON
        )
    from apollod.supervisor.config import load_config

    return str(load_config(config).socket_path)


def _check_serves(socket: str, served: str, model_dir: Path) -> None:
    if not served:
        raise DaemonUnreachable(
            f"the daemon at {socket} has no model yet", "wait until `apollod ctl status` says serving"
        )
    if Path(served).resolve() != model_dir.resolve():
        raise ConfigError(
            f"the daemon at {socket} serves {served}, not {model_dir}",
            f"give --model-dir {served}, or name the right daemon with --config FILE",
        )


_HOW = {
    "unchanged": "as it was",
    "blocks": "changed blocks written in place, through a redo record",
    "reflink": "a new file that shares unchanged blocks with the old one",
    "rewrite": "a new file",
}


def _recover(args: argparse.Namespace) -> int:
    from apollod.store.sync import recover

    _check_permitted(args.model_dir, os.R_OK | os.W_OK)
    done = recover(args.model_dir)
    lines = ["a committed sync was finished" if done.applied else "nothing to finish: the weights are whole"]
    lines += [f"  dropped {name}, of a sync that was not committed" for name in done.dropped]
    if done.generation is not None:
        lines.append(f"  weights of sync {done.generation}, step {done.step}")
    return render.show(args, dataclasses.asdict(done), lines)


def _fingerprint(args: argparse.Namespace) -> int:
    from apollod.store.access import interrupted
    from apollod.store.fingerprint import directory_fingerprint

    _check_permitted(args.model_dir, os.R_OK)
    if interrupted(args.model_dir):
        raise SyncError(
            f"a sync of {args.model_dir} was interrupted",
            f"run `apollo-checkpoint recover --model-dir {args.model_dir}` first",
        )
    found = directory_fingerprint(args.model_dir)
    return render.show(args, {"model_dir": str(args.model_dir), "fingerprint": found}, [found])


def _check_permitted(directory: Path, mode: int) -> None:
    """Raise NotPermitted for the first file or directory that the caller may not use so, before anything is done."""
    for place in (directory, directory / OURS):
        check_permitted(place, mode | os.X_OK)
    for item in sorted(directory.glob("*.safetensors*")):
        ours = item.suffix == ".safetensors" and not item.is_symlink()  # nobody writes an index, nor through a link
        check_permitted(item, mode if ours else os.R_OK)


def _failed(args: argparse.Namespace, error: ApolloError) -> None:
    print(f"apollo-checkpoint: {error.line()}", file=sys.stderr)
    if args.json:
        fields = {"error": str(error), "hint": error.hint, "committed": getattr(error, "committed", False)}
        render.print_object(fields)


if __name__ == "__main__":
    sys.exit(main())
