"""An example as a person reads it: parts in the order in which the model is shown them, its tokens (`example show
--mask`), or its story (`why`).

Learned parts are called targets, and are bold in a terminal with colours. Stripped text is struck there, and stands
between [- and -] elsewhere. Tokens come from the code that the trainer runs, with the settings that were in force when
it encoded the example; the digest in `example.encoded` tells whether they are the same.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import indent
from typing import Any, NamedTuple

from apollod.adapters.journal import blobs, journal_reader
from apollod.adapters.tokens import tokens_of
from apollod.cli import render
from apollod.cli.control import rows
from apollod.cli.control.examples import example_facts
from apollod.core.events import DaemonStarted, ExampleAccepted, ExampleEncoded
from apollod.errors import ApolloError
from apollod.wire.event_codec import decode_event
from apollod.wire.pipe_messages import TokensShown, TokensWanted
from apollod.wire.records import tokens_in_words

TOOLS = "tools"  # as `curation.stripping` calls them, which takes too long to import here
BOLD, STRUCK, OFF = "\x1b[1m", "\x1b[9;2m", "\x1b[0m"
Removed = dict[str, Any]


class Part(NamedTuple):
    """A piece of an example under a heading."""

    heading: str
    text: str
    target: bool = False
    stripped: tuple[tuple[int, str], ...] = ()
    """(index in the text, text that was there)"""
    gone: bool = False
    """True if all of it was stripped."""


def lines(record: dict[str, Any], removed: Sequence[Removed] = ()) -> list[str]:
    """Lines of all parts, each below its heading."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    shown: list[str] = []
    for part in parts(record, removed):
        shown += ["", render.plain(part.heading), indent(_marked(part, coloured), "    ")]
    return shown


def parts(record: dict[str, Any], removed: Sequence[Removed] = ()) -> list[Part]:
    """Parts of a record in the order in which the model is shown them, and stripped text at its former place."""
    if "group" in record:
        return _of_group(record["group"])
    if "pair" in record:
        better, worse = (parts(record["pair"][which], removed) for which in ("better", "worse"))
        return [*better[:-1], _compared(better[-1], "the better answer"), _compared(worse[-1], "the worse answer")]
    if "rated" in record:
        *before, answer = parts(record["rated"]["answer"], removed)
        return [*before, _compared(answer, "rated good" if record["rated"]["good"] else "rated bad")]
    if "text" in record:
        return [Part("text, target", record["text"], target=True)]
    if "completion" in record:
        return [Part("prompt", record["prompt"]), Part("completion, target", record["completion"], target=True)]
    if "token_ids" in record:
        context, target = (tokens_in_words(record[name]) for name in ("prompt_token_ids", "token_ids"))
        return [Part("prompt, token ids", context), Part("answer, token ids, target", target, target=True)]
    found = [Part(f"{_of(one)}, stripped", one["text"], gone=True) for one in removed if one["why"] == TOOLS]
    if record.get("tools"):
        found.append(Part("tools", json.dumps(record["tools"], ensure_ascii=False, indent=2)))
    for place in range(len(record["messages"]) + 1):
        here = [one for one in removed if one["place"] == place and one["why"] != TOOLS]
        found += [Part(f"{_of(one)}, stripped", one["text"], gone=True) for one in here if one["at"] < 0]
        if place < len(record["messages"]):
            spans = tuple((one["at"], one["text"]) for one in here if one["at"] >= 0)
            found.append(_turn(record["messages"][place], spans))
    return found


def _of_group(group: dict[str, Any]) -> list[Part]:
    """Prompt of a group of rollouts, then each answer with its score."""
    each = zip(group["answers"], group["scores"], strict=True)
    prompt = [_turn({**turn, "weight": 0}, ()) for turn in group["prompt"]]
    return prompt + [
        Part(f"answer {number} of {len(group['answers'])}, score {score:g}, target", answer, target=True)
        for number, (answer, score) in enumerate(each, 1)
    ]


def _compared(answer: Part, found: str) -> Part:
    return answer._replace(heading=f"{answer.heading.removesuffix(', target')}, {found}, target")


def _of(one: Removed) -> str:
    return str(one.get("role") or one["why"])


def _turn(turn: dict[str, Any], stripped: tuple[tuple[int, str], ...]) -> Part:
    heading = " ".join(turn[name] for name in ("role", "name", "tool_call_id") if name in turn)
    target = turn["role"] == "assistant" and bool(turn.get("weight", 1))
    calls = [call_text(call.get("function", {})) for call in turn.get("tool_calls", [])]
    thought = [f"<think>\n{turn['reasoning_content']}\n</think>"] if turn.get("reasoning_content") else []
    text = "\n".join([*thought, *([turn["content"]] if turn["content"] else []), *calls])
    return Part(f"{heading}, target" if target else heading, text, target, stripped)


def call_text(function: dict[str, Any]) -> str:
    """A call for people: its name, then each argument on a line; a text of several lines stands below its name."""
    arguments = function.get("arguments")
    if not isinstance(arguments, dict):
        return f"calls {function.get('name', '')}\n    {arguments}"
    lines = [f"calls {function.get('name', '')}"]
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"    {name}:\n{indent(text, ' ' * 8)}" if "\n" in text else f"    {name}: {text}")
    return "\n".join(lines)


def _marked(part: Part, coloured: bool) -> str:
    """Text of a part with marks, safe for a terminal."""
    if part.gone:
        return _struck(part.text, coloured)
    pieces, at = [], 0
    for where, text in part.stripped:
        pieces += [render.plain(part.text[at:where]), _struck(text, coloured)]
        at = where
    text = "".join([*pieces, render.plain(part.text[at:])])
    return f"{BOLD}{text}{OFF}" if part.target and coloured else text


def _struck(text: str, coloured: bool) -> str:
    return f"{STRUCK}{render.plain(text)}{OFF}" if coloured else f"[-{render.plain(text)}-]"


# --- its tokens ---------------------------------------------------------------------------------------------------

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
"""Changes in `example.encoded`, for people."""
LEARNED = "\x1b[1;32m"


class _Encoding(NamedTuple):
    """Inputs that the tokens of an example depend on. `recorded`: the trainer's own report, if it encoded the
    example."""

    recorded: ExampleEncoded | None
    objective: str
    model_dir: str
    max_tokens: int


def show_mask(args: argparse.Namespace, path: str, id_: str) -> int:
    """Print the tokens; exit code 1 if they are not the recorded ones."""
    accepted = journal_reader.accepted(path, id_)
    assert accepted is not None, id_  # its id was looked up there
    encoding = _encoding(path, accepted, args.model_dir)
    recorded = encoding.recorded
    shown = tokens_of(
        TokensWanted(
            encoding.model_dir, blobs.recorded(path, accepted), encoding.max_tokens,
            encoding.objective, recorded.digest if recorded else "",
        )
    )  # fmt: skip
    if shown.refused:
        raise ApolloError(shown.refused, f"{shown.hint}; --model-dir DIR takes the tokenizer of another directory")
    same = None if recorded is None else recorded.digest == shown.digest
    if args.json:
        render.print_object({"example": _object(id_, encoding, shown, same)})
    else:  # with colours of ours
        print("\n".join(_mask_lines(id_, encoding, shown)))
    for said in _remarks(encoding, shown, same):
        render.say(said)
    return 1 if same is False else 0


def _encoding(path: str, accepted: ExampleAccepted, model_dir: str | None) -> _Encoding:
    """Inputs of the last time that the trainer encoded the example, else those of today. Raises ApolloError."""
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
        "id": id_, "objective": encoding.objective, "tokens": len(shown.ids), "trained": sum(shown.mask),
        "share": sum(shown.mask) / len(shown.mask), "cut": shown.cut, "left_out": shown.left_out,
        "changes": shown.changes, "digest": shown.digest, "recorded_digest": recorded.digest if recorded else None,
        "same": same, "template": shown.template, "model_dir": encoding.model_dir, "max_tokens": encoding.max_tokens,
        "starts": shown.starts, "ids": shown.ids, "texts": shown.texts,
        "mask": [int(learned) for learned in shown.mask],
    }  # fmt: skip


def _remarks(encoding: _Encoding, shown: TokensShown, same: bool | None) -> Iterator[str]:
    """Remarks that a reader needs before believing the mask."""
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


def _mask_lines(id_: str, encoding: _Encoding, shown: TokensShown) -> Iterator[str]:
    count, learned = len(shown.ids), sum(shown.mask)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    yield f"example     {id_}"
    cut = f", {shown.cut} cut off at the left" if shown.cut else ""
    yield f"tokens      {count}, {learned} of them trained ({100 * learned / count:.1f} %){cut}"
    for what, times in shown.changes.items():
        yield f"            {times} {CHANGES.get(what, what)}"
    same = encoding.recorded is not None and encoding.recorded.digest == shown.digest
    yield f"digest      {shown.digest}" + (" (as recorded)" if same else "")
    ends = [*shown.starts[1:], count]
    for start, end in zip(shown.starts, ends, strict=True):
        yield ""
        yield indent(_masked(shown.texts[start:end], shown.mask[start:end], coloured), "    ")


def _masked(texts: list[str], mask: list[bool], coloured: bool) -> str:
    """Text with learned tokens in colour, or between [[ and ]]."""
    pieces: list[str] = []
    for learned, run in groupby(zip(texts, mask, strict=True), key=lambda token: token[1]):
        text = render.plain("".join(text for text, _ in run))
        opening, closing = (LEARNED, OFF) if coloured else ("[[", "]]")
        pieces.append(f"{opening}{text}{closing}" if learned else text)
    return "".join(pieces)


# --- where it came from and what became of it ---------------------------------------------------------------------

TEXT_MAX = 100  # characters of a record for people; --json has all of it


def about_example(e: dict[str, Any]) -> list[str]:
    """Lines about an accepted example, see `example_facts.example_of`; not made safe for a terminal yet."""
    counts = "" if e["tokens"] is None else f"{e['tokens']} tokens, {e['targets']} of them targets, {e['cut']} cut off"
    again = f"seen again {e['duplicates']}x" if e["duplicates"] else ""
    tried = f"tried in steps {' '.join(map(str, e['steps']))}" if e["steps"] not in ([], [e["step"]]) else ""
    return render.fields(
        ("example", f"{e['id']}   {example_facts.became(e)}"),
        ("source", f"{_lines_of(e)}   {e['tier']}, accepted {e['at']} (event {e['seq']})"),
        ("origin", _origin(e["origin"])),
        ("removed", _removed(e["removed"])),
        ("", "; ".join(filter(None, (counts, again, tried)))),
        ("again", e["again_of"] and f"of {e['again_of']}, which taught the same"),
        *example_facts.learned_fields(e),
        ("decided", e["decided"] and _decided(e["decided"])),
        *(("because", f"{fact['kind']}   {_evidence(fact)}   {fact['at']} (event {fact['seq']})")
          for fact in e["evidence"]),
        ("record", _cut(" ".join(json.dumps(e["record"], ensure_ascii=False).split()))),
    )  # fmt: skip


def _decided(last: dict[str, Any]) -> str:
    """The last decision, which is the one in force: author and reason."""
    known = {"person": f"by {last['by']}, a person", "rule": "by a rule", "evidence": "by what a log shows"}
    who = known.get(last["who"], f"by the {last['who']}")
    return f"{last['what']} {who}" + (f": {last['reason']}" if last["reason"] else "") + f"   (event {last['seq']})"


def _lines_of(e: dict[str, Any]) -> str:
    """File and lines of an example."""
    first = e["origin"].get("first_line", 0)
    return f"{e['path']}:{first}-{e['line']}" if 0 < first < e["line"] else f"{e['path']}:{e['line']}"


def _origin(origin: dict[str, Any]) -> str:
    """Session, program, model and records, as far as the log names them."""
    by = " ".join(origin[name] for name in ("agent", "version") if origin.get(name))
    told = [f"session {origin['session']}"] if origin.get("session") else []
    told += [by] if by else []
    told += [f"answers of {origin['model']}"] if origin.get("model") else []
    for name in ("records", "responses"):
        told += [f"{name} {' '.join(origin[name])}"] if origin.get(name) else []
    return ", ".join(told)


def _removed(removed: list[dict[str, Any]]) -> str:
    """Stripped text, by reason."""
    texts: dict[str, list[str]] = {}
    for one in removed:
        texts.setdefault(one["why"], []).append(one["text"])
    return "; ".join(
        f"{why} ({len(said)}x, {sum(map(len, said))} characters): {_cut(' '.join(said[0].split()))}"
        for why, said in texts.items()
    )


def _evidence(fact: dict[str, Any]) -> str:
    return example_facts.told(fact["body"]) if fact["kind"] == "signal.flagged" else _fields(fact["body"])


def _fields(body: dict[str, Any]) -> str:
    said = {
        name: value
        for name, value in body.items()
        if name not in ("example", "examples", "again") and value not in ("", None, [])
    }
    return _cut(" ".join(f"{name}={value}" for name, value in said.items()))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."


def about_step(s: dict[str, Any]) -> list[str]:
    """Lines about a step, see `example_facts.step_of`; not made safe for a terminal yet."""
    loss = "-" if s["loss"] is None else f"{s['loss']:.6g}"
    lr = "-" if s["lr"] is None else f"{s['lr']:g}"
    norms = "" if s["grad_norm"] is None else f", gradient {s['grad_norm']:.4g}, update {s['update_norm']:.4g}"
    before, after, checkpoint = s["before"], s["after"], s["checkpoint"]
    lines = [
        f"step        {s['step']}   {s['state']}"
        + (f": {s['reason']}" if s["reason"] else "")
        + f"   {s['at']} (event {s['seq']})",
        f"learning    lr {lr}, loss {loss}{norms}" + ("" if s["applied"] in (True, None) else "; nothing was written"),
        f"weights     version {before['version'] if before['version'] is not None else '-'} "
        f"({before['fingerprint'] or 'unknown'}) -> "
        + (f"version {after['version']} ({after['fingerprint']})" if after else "unchanged"),
    ]
    if len(s["examples"]) > 1:
        each = [
            f"            {one['example']}   {_lines_of(one)}   {_origin(one['origin'])}".rstrip()
            for one in s["sources"]
        ]
        lines[1:1] = [f"together    {len(s['examples'])} examples: {' '.join(s['examples'])}", *each]
    if after:
        missing = "in none" if s["taken_back"] else "not in one yet"
        where = f"step {checkpoint['step']} {checkpoint['path']}" if checkpoint else missing
        removed = " (removed since, to make room)" if checkpoint and checkpoint["state"] == "removed" else ""
        lines.append(f"checkpoint  {where}{removed}")
    if back := s["taken_back"]:
        lines.append(f"taken back  by the rollback to step {back['to']}   {back['at']} (event {back['seq']})")
    return lines
