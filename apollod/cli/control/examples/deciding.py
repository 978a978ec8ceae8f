"""`apollod ctl example approve|decline|hold|edit|withdraw|forget`: decisions of a person about examples."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from apollod.cli import render
from apollod.cli.control import ctl, rows
from apollod.cli.control.examples import example_facts
from apollod.cli.control.examples.example_text import call_text, parts
from apollod.core.facts.review import Choice, Decision
from apollod.errors import ApolloError, ConfigError
from apollod.wire import control_messages as msg
from apollod.wire.comparisons import COMPARED

SCISSORS = "# ---- >8 ---- what you write above is learned; from this line on nothing is ----"
ABOVE_SHOWN = 2
"""Parts of the record before the answer that are shown below the line."""
DONE: dict[Choice, str] = {"approve": "approved", "decline": "declined", "hold": "held"}
"""Fields of the daemon's answer."""


def arguments(parser: argparse.ArgumentParser, kept: str) -> None:
    """Examples, and a reason. `kept`: help for the latter."""
    parser.add_argument("examples", nargs="+", metavar="EXAMPLE", help="ids, or their first 6 or more digits")
    parser.add_argument("--reason", default="", help=kept)


def edit_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the new text of an example is."""
    parser.add_argument("--record", action="store_true", help="$EDITOR opens the whole record as JSON, not the answer")
    parser.add_argument(
        "--file", metavar="FILE", dest="text",
        help="the record as JSON, - for standard input; default: $EDITOR opens the answer",
    )  # fmt: skip


def withdraw_arguments(parser: argparse.ArgumentParser) -> None:
    """Examples, or a source."""
    parser.add_argument(
        "examples", nargs="*", metavar="EXAMPLE", help="ids, or their first 6 or more digits; all have to wait"
    )
    parser.add_argument(
        "--source", default="", help="all that wait of one source: a path, or ctl:PATH and the like for what was given"
    )


def edit(args: argparse.Namespace) -> int:
    """Learn an edited text instead of an example, before all others."""
    path = ctl.journal_path(args)
    id_ = example_facts.meant(path, args.example)
    ((record,),) = rows.tuples(path, f"SELECT record FROM examples WHERE id = '{id_}'")
    known, whole = json.loads(record), bool(args.record or args.text)
    if args.text:
        written = sys.stdin.buffer.read() if args.text == "-" else Path(args.text).read_bytes()
    else:
        written = edited(as_record(known) if whole else as_answer(known), suffix(whole))
    try:
        line = line_of(written) if whole else with_answer(known, written)
        answer = ctl.ask(ctl.socket_path(args), msg.EditRequest(id_, line, ctl.by()))
    except ApolloError as error:
        if args.text:
            raise
        takes = ", which --file takes" if whole else ""
        error.hint = f"{error.hint}; what you wrote is in {_kept(written, suffix(whole))}{takes}"
        raise
    return render.show(args, answer, f"{answer['into']} is learned instead")


def line_of(written: bytes) -> bytes:
    """Join JSON of several lines to one line. Raises ApolloError."""
    try:
        return json.dumps(json.loads(written)).encode()
    except (ValueError, RecursionError) as error:
        raise ApolloError(f"what was written is not JSON: {error}", "nothing was changed") from error


def as_record(record: dict[str, Any]) -> bytes:
    """JSON of a whole record, for the editor."""
    return json.dumps(record, indent=2, ensure_ascii=False).encode() + b"\n"


def as_answer(record: dict[str, Any]) -> bytes:
    """Text of the answer, for the editor; below a scissors line, which ends it, its tool calls and the end of the
    context."""
    place, field = _answer(record)
    holder = record["messages"][place] if place is not None else record
    below = [f"calls that stay:\n{calls}\n" if (calls := _calls(holder)) else ""]
    below += [f"{part.heading}:\n{part.text}\n" for part in parts(record) if not part.target][-ABOVE_SHOWN:]
    text = f"{holder[field]}\n{SCISSORS}\n" + "\n".join(filter(None, below))
    return text.encode("utf-8", "surrogatepass")


def with_answer(record: dict[str, Any], written: bytes) -> bytes:
    """Replace the answer of a record by the edited text; returns one line of JSON, in which the whole answer is
    learned. Raises ApolloError for bytes that are not UTF-8, or an empty answer."""
    try:
        text = written.decode()
    except UnicodeDecodeError as error:
        raise ApolloError(f"what was written is not UTF-8: {error}", "save it as UTF-8; nothing was changed") from error
    answer = f"\n{text}".partition(f"\n{SCISSORS}")[0].strip("\n")
    place, field = _answer(record)
    if not answer.strip() and not (place is not None and _calls(record["messages"][place])):
        raise ApolloError("the answer is empty", "decline it if nothing should be learned; nothing was changed")
    if place is None:
        return json.dumps({**record, field: answer}).encode()
    messages = list(record["messages"])
    messages[place] = {key: value for key, value in messages[place].items() if key != "part"} | {field: answer}
    return json.dumps({**record, "messages": messages}).encode()


def _answer(record: dict[str, Any]) -> tuple[int | None, str]:
    """Index of the last learned message (None: the record has no messages), and the field that holds its text."""
    if not record.keys().isdisjoint(COMPARED):
        raise ApolloError(
            "answers that are compared are learned as they were given", "`apollod ctl example decline` leaves it out"
        )
    if "token_ids" in record:
        raise ApolloError("token ids have no text to edit", "edit the whole record with --record")
    if "messages" not in record:
        return None, "completion" if "completion" in record else "text"
    turns = enumerate(record["messages"])
    return [n for n, one in turns if one["role"] == "assistant" and one.get("weight") != 0][-1], "content"


def _calls(message: dict[str, Any]) -> str:
    return "\n".join(call_text(call["function"]) for call in message.get("tool_calls") or ())


def suffix(whole: bool) -> str:
    """File suffix, from which an editor chooses its syntax highlighting."""
    return ".json" if whole else ".md"


def edited(text: bytes, suffix: str) -> bytes:
    """Let a person edit a text in their editor ($VISUAL, $EDITOR, else vi). Raises ApolloError."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="apollod-") as directory:
        file = Path(directory) / f"example{suffix}"
        file.write_bytes(text)
        # $EDITOR may have arguments: the shell takes it apart, as git does
        done = subprocess.run(["/bin/sh", "-c", f'{editor} "$@"', editor, str(file)], check=False).returncode
        if done != 0:
            raise ApolloError(f"{editor} ended with {done}", "nothing was changed; $EDITOR names another one")
        if (written := file.read_bytes()) == text:
            raise ApolloError("nothing was changed in it", "approve it, or leave it held")
        return written


def _kept(written: bytes, suffix: str) -> str:
    """Save a rejected edit to a file, so that it is not lost; returns its path."""
    descriptor, path = tempfile.mkstemp(prefix="apollod-", suffix=suffix)
    with open(descriptor, "wb") as file:
        file.write(written)
    return path


def decide(args: argparse.Namespace, choice: Choice) -> int:
    """Decide about examples. Exit code 1 if any decision came too late."""
    path = ctl.journal_path(args)
    ids = list(dict.fromkeys(example_facts.meant(path, example) for example in args.examples))
    wanted = tuple(Decision(id_, choice, args.reason) for id_ in ids)
    answer = ctl.ask(ctl.socket_path(args), msg.DecideRequest(wanted, ctl.by()))
    count = len(answer[DONE[choice]])
    render.show(args, answer, f"{count} {DONE[choice]}")
    for one in answer["refused"]:
        render.say(f"{one['example']}: {one['why']}")
    return 1 if answer["refused"] else 0


def withdraw(args: argparse.Namespace) -> int:
    """Take examples out of the queue; returns when it is recorded. One that is being learned stays."""
    if bool(args.examples) == bool(args.source):
        raise ConfigError("which examples?", "give ids, or --source SOURCE for all that wait of one source")
    ids = [example_facts.meant(ctl.journal_path(args), example) for example in args.examples]
    said = "examples no longer wait; `apollod ctl relearn ID...` asks for them"
    return ctl.tell(args, msg.WithdrawRequest(ids, args.source), lambda answer: f"{len(answer['examples'])} {said}")


def forget(args: argparse.Namespace) -> int:
    """Remove learned examples from the weights; returns once the request is recorded. `ctl why ID` shows its end."""
    ids = [example_facts.meant(ctl.journal_path(args), example) for example in args.examples]
    answer = ctl.ask(ctl.socket_path(args), msg.ForgetRequest(ids, args.reason))
    others = "".join(f"; {one['example']}: {one['why']}" for one in answer["refused"])
    render.show(args, answer, f"{len(answer['examples'])} examples are forgotten before the next step{others}")
    return 1 if answer["refused"] else 0
