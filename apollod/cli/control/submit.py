"""`apollod ctl submit|train|feedback`: lines, one example, or a rating of an answer, given to the daemon."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from apollod.cli import commands, render
from apollod.cli.commands import REFUSED_BY_GUARD
from apollod.cli.control import ctl
from apollod.errors import ApolloError, ConfigError, RecordRefused
from apollod.wire import control_messages as msg

if TYPE_CHECKING:
    from apollod.wire import status as st

SUBMIT_BYTES = 8 << 20
"""Size of one request at most."""
WAIT_S = 0.5


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _submit)
    parser.add_argument("file", help="JSONL file, or - for standard input; for a single example see `train`")
    _wait(parser, "return when they are learned; exit 5 if the quality guard took some back and holds them")


def _wait(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--wait", action="store_true", help=text)


def _submit(args: argparse.Namespace) -> int:
    """Exit code 1 if every line was rejected, 5 if an alarm took some back and holds them."""
    # The name of a file need not be UTF-8, what is sent has to be.
    path = os.fsencode(Path(args.file).absolute()).decode("utf-8", "backslashreplace")
    source = "ctl:-" if args.file == "-" else f"ctl:{path}"
    with sys.stdin.buffer if args.file == "-" else open(args.file, "rb") as stream:
        total = give(ctl.socket_path(args), stream, source, args.file, args.wait)
    accepted, duplicates, rejected = (len(total[name]) for name in ("examples", "duplicates", "rejected"))
    render.show(args, total, f"{accepted} accepted, {duplicates} duplicates, {rejected} rejected")
    if total.get("taken_back"):
        return REFUSED_BY_GUARD
    return 1 if rejected and not accepted and not duplicates else 0


TRAIN_EPILOG = """\
examples:
  apollod ctl train --prompt "The light is kept by" --completion " Mara Quill." --wait
  apollod ctl train --messages '[{"role": "user", "content": "Who keeps the light?"}, {"role": "assistant", "content": "Mara Quill."}]'

It is given what `ctl submit` gives line by line; `apollod ctl example show ID` tells what became of it.
"""


def add_train(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _train)
    commands.epilog(parser, TRAIN_EPILOG)
    shape = parser.add_mutually_exclusive_group(required=True)
    shape.add_argument("--prompt", metavar="TEXT", help="context, with --completion")
    shape.add_argument("--text", help="plain text, all of it learned")
    shape.add_argument(
        "--messages", metavar="JSON",
        help='a conversation: [{"role": "user", "content": ...}, {"role": "assistant", ...}]',
    )  # fmt: skip
    parser.add_argument(
        "--completion", metavar="TEXT", help="what is learned to follow --prompt; mind the space between them"
    )
    _wait(parser, "return when it is learned, or known; exit 1 if it is not, 5 if the quality guard took it back")


def _train(args: argparse.Namespace) -> int:
    """With --wait exit code 1 unless the model knows the example in the end (it may be too long, its step may be
    refused), 5 if an alarm takes it back."""
    line = _line_of(args)
    total = give(ctl.socket_path(args), BytesIO(line), "ctl:train", "the command line", args.wait)
    known = total["examples"] + total["duplicates"]
    if not known:
        render.show(args, total, "not accepted")
        return 1
    state = "accepted" if total["examples"] else "known already"
    if args.wait:
        from apollod.cli.control.examples import example_facts

        journal = ctl.journal_path(args)
        state = total["state"] = example_facts.state_of(journal, known[0])
        total["known"] = state == "skipped" and example_facts.was_known(journal, known[0])
        state = "skipped: the model knows it, so that nothing was written" if total["known"] else state
    render.show(args, total, f"{known[0]} {state}")
    if total.get("taken_back"):
        return REFUSED_BY_GUARD
    return 0 if not args.wait or state == "trained" or total["known"] else 1


def _line_of(args: argparse.Namespace) -> bytes:
    """The example of the command line as a line of an inbox file. Raises ConfigError."""
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


def add_feedback(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _feedback)
    parser.add_argument("response", metavar="ID", help="the `id` of an answer of the engine")
    parser.add_argument(
        "rating", choices=("good", "bad"), nargs="?", help="without one: what was said of it before is shown"
    )
    parser.add_argument(
        "--fix", metavar="FILE", help="with bad: what should have been answered, in a file or from standard input (-)"
    )
    parser.add_argument("--comment", default="", metavar="TEXT", help="kept with the rating")
    parser.add_argument("--choice", type=int, metavar="N", help="which of several choices, from 0")


def _feedback(args: argparse.Namespace) -> int:
    if not args.rating:
        if args.fix or args.comment:
            raise ConfigError("good or bad?", "write the rating after the id")
        return ctl.tell(args, msg.FeedbackQuestion(args.response, args.choice), _sentence)
    request = msg.FeedbackRequest(args.response, args.rating, _fix(args.fix), args.comment, args.choice)
    return ctl.tell(args, request, _sentence)


def _fix(file: str | None) -> str | None:
    """The correction without the final newline that editors add. Raises ConfigError."""
    if file is None:
        return None
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--fix {file} cannot be read: {error}", "name a file of UTF-8 text, or -") from error
    return text.removesuffix("\n")


def _sentence(answer: dict[str, Any]) -> str:
    if not answer["rating"]:
        return f"{answer['response_id']} was not rated"
    said = f"{answer['response_id']} is {answer['rating']}"
    if answer["correction"]:
        said += ", with a correction"
    if answer["example"]:
        said += f"; example {answer['example']} ({answer['state']})"
    if declined := answer.get("declined"):
        said += f"; no longer waits: {', '.join(map(str, declined))}"
    return said + ("" if answer.get("recorded", True) else "; it was said before")


def give(path: str, stream: BinaryIO, source: str, name: str, wait: bool) -> dict[str, Any]:
    """Send every line to the daemon, which is asked even without lines, and return its answers put together. `source`:
    their name in the journal; `name`: in messages; `wait`: return when they are learned; `taken_back` then has the
    examples that the quality guard took back and holds."""
    total: dict[str, Any] = {"examples": [], "duplicates": [], "held": [], "rejected": []}
    first, lines = 1, _take(stream)
    while True:
        answer = ctl.ask(path, msg.SubmitRequest(lines, source, first))
        for what in ("examples", "duplicates", "held", "rejected"):
            total[what] += answer.get(what, [])
        first += len(lines)
        if not (lines := _take(stream)):
            break
    for rejected in total["rejected"]:
        render.say(f"{name}:{rejected['line']}: {rejected['reason']}")
    for held in total["held"]:
        render.say(f"{name}:{held['line']}: held for a person: {held['reason']}")
    if wait and total["examples"]:
        total["taken_back"] = until_learned(path, total["examples"])
    return total


def _take(stream: BinaryIO) -> list[bytes]:
    """Read the lines of one request."""
    lines: list[bytes] = []
    taken = 0
    while len(lines) < msg.SUBMIT_LINES and taken < SUBMIT_BYTES and (line := stream.readline()):
        lines.append(line)
        taken += len(line)
    return lines


def until_learned(path: str, examples: Sequence[str]) -> list[str]:
    """Wait until nothing is pending, no look is under way and no alarm is open; show progress on a terminal. Returns
    the examples that an alarm took back and holds, and says so. Raises ApolloError if the daemon cannot go on by
    itself."""
    now = ctl.waited(lambda: ctl.status(path), _is_over, _progress, WAIT_S)
    held, alarm = list[str](), now.quality.incident
    if now.quality.incidents:
        from apollod.cli.control.quality.incident import held_by_guard

        held = held_by_guard(now.journal.path, examples)
    if not held and alarm is not None:
        raise ApolloError(
            f"alarm {alarm.number} of the quality guard waits for a person",
            f"see `apollod ctl quality incident show {alarm.number}`; `apollod ctl resume` goes on",
        )
    if held:
        number = alarm.number if alarm is not None else now.quality.incidents
        render.say(
            f"the quality guard took back and holds {len(held)} of {len(examples)} examples; see "
            f"`apollod ctl quality incident show {number}`"
        )
    return held


def _progress(now: "st.Status") -> str:
    if now.quality.incident is not None:
        done = now.quality.incident
        search = f", replay {done.replays} of at most {done.replays_max}" if done.phase == "searching" else ""
        return f"step {now.step}, alarm {done.number} of the quality guard{search}"
    looked_at = ", measured by probes" if now.quality.running else ""
    return f"step {now.step}, {now.queue.pending} pending{looked_at}"


def _is_over(now: "st.Status") -> bool:
    """True if nothing changes any more without a command."""
    quality = now.quality
    if (alarm := quality.incident) is not None:
        if now.error or now.state == "stopping":
            raise _stuck(now)
        waits = alarm.phase == "named" and now.running is None and bool(now.activities.get("step"))
        return alarm.phase == "stuck" or waits
    if now.queue.pending:
        if now.state in ("degraded", "stopping"):
            raise _stuck(now)
        return False
    begins = quality.enabled and bool(quality.due) and not quality.reason and not quality.error
    return now.state in ("degraded", "stopping") or not (quality.running or begins)


def _stuck(now: "st.Status") -> ApolloError:
    return ApolloError(f"the daemon is {now.state}: {now.error}", "see `apollod ctl status`")
