"""`apollod ctl`: one request over the control socket, or a read-only look at the journal file.

Imports nothing that takes time: no anyio, no structlog, no aiosqlite.
"""

import argparse
import json
import os
import re
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from apollod.adapters.link import Link
from apollod.cli import exits, numbers, render
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, RecordRefused
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
        case "train":
            return _train(args)
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
        case "example" | "source":
            from apollod.cli import examples

            return examples.run(args, journal_path(args))
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
    """One request, one answer; a refusal raises with the daemon's words, and ends a command with the daemon's exit code."""
    link = Link.connect(path, timeout_s)
    try:
        link.send(request)
        answer = link.receive()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{error.object!r} is not text that UTF-8 can hold", "give it in UTF-8") from error
    finally:
        link.close()
    if isinstance(answer, msg.Failure):
        raise exits.error_of(answer.code)(answer.error, answer.hint)
    if not isinstance(answer, msg.Reply):
        raise DaemonUnreachable(f"unexpected answer {type(answer).__name__}", "use one version of apollod everywhere")
    return dict(answer.body)


def _print(args: argparse.Namespace, answer: dict[str, Any], text: str) -> int:
    print(json.dumps(answer) if args.json else render.plain(text))
    return 0


def _step_of(text: str) -> int:
    """A step, or the step of a checkpoint that is named by its directory (the last part is enough)."""
    found = re.fullmatch(r"(?:.*/)?(?:step-)?([0-9]{1,19})(?:-[0-9]+)?/?", text)
    if found is None or int(found[1]) > numbers.COUNT_MAX:
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
    path = os.fsencode(Path(args.file).absolute()).decode("utf-8", "backslashreplace")  # names need not be UTF-8, what is sent has to be
    source = "ctl:-" if args.file == "-" else f"ctl:{path}"
    with sys.stdin.buffer if args.file == "-" else open(args.file, "rb") as stream:
        total = _give(args, stream, source, args.file)
    counts = f"{len(total['examples'])} accepted, {len(total['duplicates'])} duplicates, {len(total['rejected'])} rejected"
    _print(args, total, counts)
    return 1 if total["rejected"] and not total["examples"] and not total["duplicates"] else 0


def _train(args: argparse.Namespace) -> int:
    """With --wait it fails unless the example was learned: it may be too long, or its step may be refused."""
    total = _give(args, BytesIO(_line_of(args)), "ctl:train", "the command line")
    known = total["examples"] + total["duplicates"]
    if not known:
        _print(args, total, "not accepted")
        return 1
    state = "accepted" if total["examples"] else "known already"
    if args.wait:
        from apollod.cli import examples

        state = total["state"] = examples.state_of(journal_path(args), known[0])
    _print(args, total, f"{known[0]} {state}")
    return 0 if not args.wait or state == "trained" else 1


def _line_of(args: argparse.Namespace) -> bytes:
    """The example of the command line as a line of an inbox file; raises ConfigError for what is none."""
    from apollod.wire.records import parse_line

    if (args.prompt is None) != (args.completion is None):
        raise ConfigError("--prompt and --completion belong together", "for text without a prompt: --text")
    record: dict[str, Any] = {"prompt": args.prompt, "completion": args.completion, "text": args.text}
    try:
        record["messages"] = None if args.messages is None else json.loads(args.messages)
        line = json.dumps({name: value for name, value in record.items() if value is not None}).encode()
        parse_line(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"--messages is not JSON: {error}", 'give [{"role": "user", "content": ...}, ...]') from error
    except RecordRefused as error:
        raise ConfigError(str(error), error.hint) from error
    return line


def _give(args: argparse.Namespace, stream: BinaryIO, source: str, name: str) -> dict[str, Any]:
    """Every line to the daemon, which is asked even where there is none; what became of them. `name`: for messages."""
    path = socket_path(args)
    total: dict[str, Any] = {"schema_version": 1, "examples": [], "duplicates": [], "rejected": []}
    first, lines = 1, _take(stream)
    while True:
        answer = ask(path, msg.SubmitRequest(lines, source))
        total["examples"] += answer["examples"]
        total["duplicates"] += answer["duplicates"]
        total["rejected"] += [{**r, "line": r["line"] + first - 1} for r in answer["rejected"]]
        first += len(lines)
        if not (lines := _take(stream)):
            break
    for rejected in total["rejected"]:
        print(render.plain(f"apollod: {name}:{rejected['line']}: {rejected['reason']}"), file=sys.stderr)
    if args.wait:
        _wait(path, total["examples"])
    return total


def _take(stream: BinaryIO) -> list[bytes]:
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
