"""`apollod ctl`: one request over the control socket, or a read-only look at the journal file.

Imports nothing that takes time: no anyio, no structlog, no aiosqlite.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from apollod.adapters.link import Link
from apollod.cli import render
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable
from apollod.wire import messages as msg

TIMEOUT_S = 10.0
CHECKPOINT_TIMEOUT_S = 3600.0
SUBMIT_LINES, SUBMIT_BYTES = 1000, 8 << 20
FOLLOW_S = 0.5


def run(args: argparse.Namespace) -> int:
    """Run one verb."""
    match args.verb:
        case "status":
            return _status(args)
        case "submit":
            return _submit(args)
        case "checkpoint":
            answer = ask(socket_path(args), msg.CheckpointRequest(), CHECKPOINT_TIMEOUT_S)
            return _print(args, answer, f"step {answer['step']} {answer['fingerprint']} {answer['model_dir']}")
        case "rollback":
            answer = ask(socket_path(args), msg.RollbackRequest(_step_of(args.to)), CHECKPOINT_TIMEOUT_S)
            return _print(args, answer, _told(answer))
        case "relearn":
            answer = ask(socket_path(args), msg.RelearnRequest(args.examples))
            return _print(args, answer, f"{len(answer['examples'])} examples wait to be learned again")
        case "pause":
            answer = ask(socket_path(args), msg.PauseRequest())
            return _print(args, answer, answer["state"])
        case "resume":
            answer = ask(socket_path(args), msg.ResumeRequest())
            return _print(args, answer, answer["state"])
    from apollod.cli import journal

    return journal.run(args, journal_path(args))


def socket_path(args: argparse.Namespace) -> str:
    """Where the daemon listens: --socket, or from its configuration."""
    if args.socket:
        return str(args.socket)
    if not args.config:
        raise ConfigError("which daemon?", "give --config FILE, --socket PATH, or set APOLLOD_CONFIG")
    from apollod.supervisor.config import load_config

    return str(load_config(args.config).socket_path)


def journal_path(args: argparse.Namespace) -> str:
    """The journal file: --file, the configuration's, or what the daemon says."""
    if getattr(args, "file", None):
        return str(args.file)
    if args.config and not args.socket:
        from apollod.supervisor.config import load_config

        return str(load_config(args.config).journal_path)
    return str(ask(socket_path(args), msg.StatusRequest())["journal"]["path"])


def ask(path: str, request: msgspec.Struct, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """One request, one answer; a refusal raises with the daemon's words."""
    link = Link.connect(path, timeout_s)
    try:
        link.send(request)
        answer = link.receive()
    finally:
        link.close()
    if isinstance(answer, msg.Failure):
        raise ApolloError(answer.error, answer.hint)
    if not isinstance(answer, msg.Reply):
        raise DaemonUnreachable(f"unexpected answer {type(answer).__name__}", "use one version of apollod everywhere")
    return dict(answer.body)


def _print(args: argparse.Namespace, answer: dict[str, Any], text: str) -> int:
    print(json.dumps(answer) if args.json else text)
    return 0


def _step_of(text: str) -> int:
    """A step, or the step of a checkpoint that is named by its directory (the last part is enough)."""
    found = re.fullmatch(r"(?:.*/)?(?:step-)?([0-9]{1,15})(?:-[0-9]+)?/?", text)
    if found is None:
        raise ConfigError(f"{text!r} is neither a step nor a checkpoint", "give a number, or a path such as .../checkpoints/step-00000012")
    return int(found[1])


def _told(done: dict[str, Any]) -> str:
    how = "undone in memory" if done["how"] == "memory" else f"restored from a checkpoint, {done['replayed']} steps run again"
    return (
        f"step {done['step']} {done['fingerprint']} is served: {len(done['undone'])} steps {how} in {done['seconds']:.2f} s\n"
        f"{len(done['examples'])} examples are taken back and not learned again; `apollod ctl relearn ID...` asks for them"
    )


def _status(args: argparse.Namespace) -> int:
    path = socket_path(args)
    while True:
        answer = ask(path, msg.StatusRequest())
        if args.watch and not args.json:
            print("\x1b[H\x1b[J" if sys.stdout.isatty() else "", end="")
        _print(args, answer, render.status(answer))
        if not args.watch:
            return 0
        sys.stdout.flush()
        time.sleep(1.0)


def _submit(args: argparse.Namespace) -> int:
    path = socket_path(args)
    source = "ctl:-" if args.file == "-" else f"ctl:{Path(args.file).absolute()}"
    try:
        stream = sys.stdin.buffer if args.file == "-" else open(args.file, "rb")
    except OSError as error:
        raise ApolloError(f"cannot read {args.file}: {error.strerror}", "name a JSONL file, or - for standard input") from error
    total: dict[str, Any] = {"schema_version": 1, "examples": [], "duplicates": [], "rejected": []}
    with stream:
        first = 1
        while lines := _take(stream):
            answer = ask(path, msg.SubmitRequest(lines, source))
            total["examples"] += answer["examples"]
            total["duplicates"] += answer["duplicates"]
            total["rejected"] += [{**r, "line": r["line"] + first - 1} for r in answer["rejected"]]
            first += len(lines)
    for rejected in total["rejected"]:
        print(f"apollod: {args.file}:{rejected['line']}: {rejected['reason']}", file=sys.stderr)
    if args.wait:
        _wait(path, total["examples"])
    counts = f"{len(total['examples'])} accepted, {len(total['duplicates'])} duplicates, {len(total['rejected'])} rejected"
    _print(args, total, counts)
    return 1 if total["rejected"] and not total["examples"] and not total["duplicates"] else 0


def _take(stream: Any) -> list[bytes]:
    lines: list[bytes] = []
    taken = 0
    while len(lines) < SUBMIT_LINES and taken < SUBMIT_BYTES and (line := stream.readline()):
        lines.append(line)
        taken += len(line)
    return lines


def _wait(path: str, examples: list[str]) -> None:
    """Until nothing is pending; progress on stderr where somebody watches."""
    while examples:
        answer = ask(path, msg.StatusRequest())
        pending = answer["queue"]["pending"]
        if os.isatty(2):
            print(f"\rstep {answer['step']}, {pending} pending   ", end="", file=sys.stderr, flush=True)
        if not pending:
            break
        if answer["state"] in ("degraded", "stopping"):
            raise ApolloError(f"the daemon is {answer['state']}: {answer['error']}", "see `apollod ctl status`")
        time.sleep(FOLLOW_S)
    if os.isatty(2):
        print(file=sys.stderr)
