"""`apollod ctl example show ID --mask`: the tokens of an example, and which of them are learned.

They come from the code that the trainer runs, with the settings that were in force when it encoded the example; the
digest in `example.encoded` tells whether they are the same.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import groupby
from textwrap import indent
from typing import Any, NamedTuple

from apollod.adapters.ipc.token_viewer import tokens_of
from apollod.adapters.journal import blobs, journal_reader
from apollod.cli import render
from apollod.cli.control.questions import rows
from apollod.core.events import DaemonStarted, ExampleAccepted, ExampleEncoded
from apollod.errors import ApolloError
from apollod.wire.event_codec import decode_event
from apollod.wire.token_view import TokensShown, TokensWanted

CHANGES = {
    "left_out": "messages before the answer left out: too old",
    "shortened": "messages shortened in their middle",
    "tools_left_out": "tools left out: too long, and not called",
    "folded": "instructions told by the user: the chat template has no place for them",
    "joined": "turns joined with the one before: the chat template wants them to alternate",
    "opened": "turn of the user put first: the chat template wants one",
    "asked_to_go_on": "turn of the other side put between: the chat template wants them to alternate",
    "as_text": "messages with calls or results written as text: the chat template does not show them",
    "split": "answers with several calls told one after the other: the chat template takes one at a time",
}
"""of `example.encoded`, for people"""
LEARNED, OFF = "\x1b[1;32m", "\x1b[0m"


class _Encoding(NamedTuple):
    """Everything that the tokens of an example depend on. `recorded`: what the trainer said of them, if it was asked
    already."""

    recorded: ExampleEncoded | None
    objective: str
    model_dir: str
    max_tokens: int


def arguments(parser: argparse.ArgumentParser) -> None:
    """--mask and what belongs to it."""
    parser.add_argument("--mask", action="store_true", help="its tokens, and which of them are learned")
    parser.add_argument("--model-dir", metavar="DIR", help="with --mask: take the tokenizer of this model directory")


def show(args: argparse.Namespace, path: str, id_: str) -> int:
    """Print it; 1 where the tokens are not those that were recorded."""
    accepted = journal_reader.accepted(path, id_)
    assert accepted is not None, id_  # its id was looked up there
    encoding = _encoding(path, accepted, args.model_dir)
    recorded = encoding.recorded
    shown = tokens_of(
        TokensWanted(
            encoding.model_dir, blobs.lesson(accepted, blobs.beside(path)), encoding.max_tokens,
            encoding.objective, recorded.digest if recorded else "",
        )
    )  # fmt: skip
    if shown.refused:
        raise ApolloError(shown.refused, f"{shown.hint}; --model-dir DIR takes the tokenizer of another directory")
    same = None if recorded is None else recorded.digest == shown.digest
    if args.json:
        print(json.dumps({"schema_version": 1, "example": _object(id_, encoding, shown, same)}))
    else:
        print("\n".join(_lines(id_, encoding, shown)))
    for said in _remarks(encoding, shown, same):
        print(f"apollod: {render.plain(said)}", file=sys.stderr)
    return 1 if same is False else 0


def _encoding(path: str, accepted: ExampleAccepted, model_dir: str | None) -> _Encoding:
    """From the last time that the trainer encoded the example, else as it would now."""
    id_ = accepted.example
    found = _last(path, f"kind = 'example.encoded' AND key = '{id_}'")
    before = f" AND seq < {found[0]}" if found else ""
    started = _last(path, f"kind = 'daemon.started'{before}")
    if started is None or not isinstance(started[1], DaemonStarted):
        raise ApolloError(
            "the journal does not say with which model the example was encoded", "start the daemon with it once"
        )
    settings = started[1].settings
    recorded = found[1] if found and isinstance(found[1], ExampleEncoded) else None
    objective = recorded.objective if recorded else "context" if accepted.teacher else "sft"
    return _Encoding(recorded, objective, model_dir or settings.model_path, settings.trainer.max_tokens)


def _last(path: str, where: str) -> tuple[int, Any] | None:
    sql = f"SELECT seq, kind, version, body FROM events WHERE {where} ORDER BY seq DESC LIMIT 1"
    return next(((seq, decode_event(*event)) for seq, *event in rows.tuples(path, sql)), None)


def _object(id_: str, encoding: _Encoding, shown: TokensShown, same: bool | None) -> dict[str, Any]:
    recorded = encoding.recorded
    return {
        "id": id_,
        "objective": encoding.objective,
        "tokens": len(shown.ids),
        "trained": sum(shown.mask),
        "share": sum(shown.mask) / len(shown.mask),
        "cut": shown.cut,
        "left_out": shown.left_out,
        "changes": shown.changes,
        "digest": shown.digest,
        "recorded_digest": recorded.digest if recorded else None,
        "same": same,
        "template": shown.template,
        "model_dir": encoding.model_dir,
        "max_tokens": encoding.max_tokens,
        "starts": shown.starts,
        "ids": shown.ids,
        "texts": shown.texts,
        "mask": [int(learned) for learned in shown.mask],
    }


def _remarks(encoding: _Encoding, shown: TokensShown, same: bool | None) -> Iterator[str]:
    """What has to be known before the mask is believed."""
    if same is False:
        assert encoding.recorded is not None
        yield (
            f"THESE ARE NOT THE TOKENS THAT WERE LEARNED: their digest is {shown.digest}, the journal has "
            f"{encoding.recorded.digest}; the tokenizer or chat template in {encoding.model_dir} changed since; "
            "--model-dir DIR takes those of another directory"
        )
    if same is None:
        yield "the trainer has not encoded this example yet; it would learn these tokens today"
    if shown.left_out:
        yield (
            f"{shown.left_out} turns are not learned although they were to be: the model's chat template shows them "
            "otherwise than they were written (it drops the thinking of earlier turns, for instance)"
        )
    if shown.template:
        yield shown.template


# --- for people ---------------------------------------------------------------------------------------------------


def _lines(id_: str, encoding: _Encoding, shown: TokensShown) -> Iterator[str]:
    count, learned = len(shown.ids), sum(shown.mask)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    yield f"example     {id_}"
    cut = f", {shown.cut} cut off at the left" if shown.cut else ""
    yield f"tokens      {count}, {learned} of them trained ({100 * learned / count:.1f} %){cut}"
    for what, times in shown.changes.items():
        yield f"            {times} {CHANGES.get(what, what)}"
    yield f"digest      {shown.digest}" + (" (as recorded)" if _is_recorded(encoding, shown) else "")
    ends = [*shown.starts[1:], count]
    for start, end in zip(shown.starts, ends, strict=True):
        yield ""
        yield indent(_marked(shown.texts[start:end], shown.mask[start:end], coloured), "    ")


def _is_recorded(encoding: _Encoding, shown: TokensShown) -> bool:
    return encoding.recorded is not None and encoding.recorded.digest == shown.digest


def _marked(texts: list[str], mask: list[bool], coloured: bool) -> str:
    """The text, what is learned in colour or between [[ and ]]."""
    pieces: list[str] = []
    for learned, run in groupby(zip(texts, mask, strict=True), key=lambda token: token[1]):
        text = render.plain("".join(text for text, _ in run))
        opening, closing = (LEARNED, OFF) if coloured else ("[[", "]]")
        pieces.append(f"{opening}{text}{closing}" if learned else text)
    return "".join(pieces)
