"""`apollod ctl example`: the examples that were accepted; `why`: where one came from and what became of it; `export`:
examples as rows of other programs, one JSON object a line."""

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from apollod.adapters.journal import journal_reader
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.cli.control.examples import deciding, example_facts, example_text
from apollod.cli.control.quality import learned_facts
from apollod.core.events import ExampleAccepted
from apollod.core.example_state import STATES
from apollod.errors import ConfigError
from apollod.wire.event_codec import decode_event

if TYPE_CHECKING:
    from apollod.curation.exports import Exported

_EXAMPLES = """
    SELECT e.id, e.state, e.source, coalesce(s.path, e.source) AS path, e.line,
           coalesce(accepted.body ->> '$.tier', 'bulk') AS tier, -- the first journals have no such column
           coalesce(accepted.body -> '$.removed', '[]') AS removed,
           e.tokens, e.targets, e.step, e.record, e.at, e.seq, {divergence}
    FROM examples AS e JOIN events AS accepted ON accepted.seq = e.seq {scores}
    LEFT JOIN (SELECT source, path FROM sources GROUP BY source) AS s ON s.source = e.source -- and may have one twice
"""


_SCORED = {"divergence": "scored.divergence", "scores": "LEFT JOIN scores AS scored ON scored.example = e.id"}
_UNSCORED = {"divergence": "NULL AS divergence", "scores": ""}


def _examples(path: str) -> str:
    """SELECT of examples; a journal without the view `scores` is from an older apollod."""
    return _EXAMPLES.format(**(_SCORED if rows.has(path, "scores") else _UNSCORED))


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the examples that were accepted"
    example = ctl.argument("example", metavar="EXAMPLE", help="its id or its first 6 or more digits")
    decided = partial(deciding.arguments, kept="kept beside the decision")
    ctl.actions(
        parser,
        ("list", "the newest examples in the order in which they are learned, and what became of them", _list,
         _list_arguments),
        ("show", "one example in full: what it says, where it came from, what became of it", _show, example,
         ctl.argument("--mask", action="store_true", help="its tokens, and which of them are learned"),
         ctl.argument("--model-dir", metavar="DIR", help="with --mask: take the tokenizer of this model directory"),
         ctl.of_a_copy),
        ("approve", "learn examples that are held, or that were declined", partial(deciding.decide, choice="approve"),
         decided),
        ("decline", "do not learn examples that are held or wait", partial(deciding.decide, choice="decline"), decided),
        ("hold", "have examples that wait, or were declined, wait for a decision",
         partial(deciding.decide, choice="hold"), decided),
        ("edit", "learn something else instead of an example; $EDITOR opens it", deciding.edit, example,
         deciding.edit_arguments),
        ("withdraw", "take examples that wait out of the queue; `ctl relearn` puts them back", deciding.withdraw,
         deciding.withdraw_arguments),
        ("forget", "take what was learned out of the weights, and repeat the steps of all others", deciding.forget,
         partial(deciding.arguments, kept="kept in the journal")),
    )  # fmt: skip


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", choices=STATES, help="only those in this state")
    commands.limited(parser)
    parser.add_argument(
        "--sort", choices=("accepted", "divergence"), default="accepted",
        help="divergence: those first whose answer owes most to what was stripped; what has no score is left out",
    )  # fmt: skip
    ctl.jsonl(parser)
    ctl.of_a_copy(parser)


def _list(args: argparse.Namespace) -> int:
    """List the newest examples in the order of acceptance, which is that of learning, or those that diverge most."""
    path, ranked = ctl.journal_path(args), args.sort == "divergence"
    wanted = [f"e.state = '{args.state}'"] * bool(args.state) + ["divergence IS NOT NULL"] * ranked
    limit = min(args.limit or rows.ROWS_MAX, rows.ROWS_MAX)
    where, order = f"WHERE {' AND '.join(wanted)}" if wanted else "", "divergence" if ranked else "e.seq"
    newest = rows.objects(path, f"{_examples(path)} {where} ORDER BY {order} DESC LIMIT {limit + 1}")
    found = [_decoded(row) for row in (newest[:limit] if ranked else reversed(newest[:limit]))]
    names: tuple[render.Column, ...] = ("state", "tier", "tokens", "step", *(["divergence"] if ranked else []))
    rows.show_list(args, "examples", found, (("example", "id"), *names, ("source", _place), ("text", _gist)))
    if len(newest) > limit:
        render.say(f"only the {'first' if ranked else 'newest'} {limit}; raise --limit, 0 for all")
    return 0


def _show(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    id_ = example_facts.meant(path, args.example)
    if args.mask:
        return example_text.show_mask(args, path, id_)
    (found,) = [_decoded(row) for row in rows.objects(path, f"{_examples(path)} WHERE e.id = '{id_}'")]
    # A step over several examples names the first one, and all in a list.
    tried = rows.objects(
        path,
        f"""
        SELECT body ->> '$.step' AS step, coalesce(body ->> '$.reason', body ->> '$.note', '') AS reason FROM events
        WHERE kind IN ('step.completed', 'step.failed') AND seq > {found["seq"]} AND (
            body ->> '$.example' = '{id_}'
            OR EXISTS (SELECT 1 FROM json_each(body, '$.examples') AS e WHERE e.value = '{id_}'))
        ORDER BY seq
    """,
    )
    found |= {
        "signals": example_facts.signals_of(path, id_), "gain": learned_facts.gain_of(path, id_),
        "lesson": example_facts.lesson_of(path, id_), "replaced": example_facts.replaced_by(path, id_),
    }  # fmt: skip
    state = found["state"]
    reason = tried[-1]["reason"] if tried and state in ("held", "skipped") else ""
    if event := {"rejected": "'example.rejected'", "skipped": "'example.looked' AND body ->> '$.known'"}.get(state):
        of_it = f"kind = {event} AND key = '{id_}' ORDER BY seq DESC LIMIT 1"
        reason = rows.scalar(path, f"SELECT body ->> '$.reason' FROM events WHERE {of_it}") or reason
    found |= {"steps": [row["step"] for row in tried], "reason": reason}
    if args.json:
        render.print_object({"example": found})
        return 0
    print(_text(found))  # with colours of ours
    return 0


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "record": json.loads(row["record"]), "removed": json.loads(row["removed"])}


def _place(e: dict[str, Any]) -> str:
    return f"{rows.end_of(e['path'])}:{e['line']}"


def _gist(e: dict[str, Any]) -> str:
    return " | ".join(part.text for part in example_text.parts({**e["record"], "tools": []}))


def _text(e: dict[str, Any]) -> str:
    divergence, tokens = e["divergence"], e["tokens"]
    lines = render.fields(
        ("example", e["id"]),
        ("state", example_facts.became(e)),
        ("steps", " ".join(map(str, e["steps"])) if len(e["steps"]) > 1 else ""),
        ("source", f"{e['path']}:{e['line']}"),
        ("tier", e["tier"]),
        ("accepted", f"{e['at']} (event {e['seq']})"),
        *example_facts.learned_fields(e),
        ("divergence", "" if divergence is None else f"{divergence:.3f} a token"),
        ("tokens", "" if tokens is None else f"{tokens}, {e['targets']} of them targets"),
        *(("signal", example_facts.told(one)) for one in e["signals"]),
    )
    return "\n".join([*map(render.plain, lines), *example_text.lines(e["record"], e["removed"])])


# --- why: from a step to the line it learned from and the weights it made, and back --------------------------------


def add_why(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _why)
    parser.add_argument(
        "what", metavar="STEP|EXAMPLE", help="a step number, or an example's id or its first 6 or more digits"
    )
    ctl.of_a_copy(parser)


def _why(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    number, example = _meant(path, args.what)
    step = None if number is None else example_facts.step_of(path, number)
    told = example_facts.example_of(path, example if step is None else step["example"])
    if step is None and told["step"] is not None:
        step = example_facts.step_of(path, told["step"])
    parts = (example_text.about_example(told), example_text.about_step(step) if step else [])
    lines = [line.replace("\n", "\\n") for part in (parts if number is None else reversed(parts)) for line in part]
    return render.show(args, {"example": told, "step": step}, lines)


def _meant(path: str, what: str) -> tuple[int | None, str]:
    """A step number, or the id of an example; an argument that could be both is a step if that exists."""
    text = what.lower()
    number = int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None
    if number is not None and example_facts.step_facts(path, number):
        return number, ""
    prefix = example_facts.is_id(text)
    if number is None and not prefix:
        raise ConfigError(
            f"{what!r} is neither a step nor an example",
            f"give a step number, or at least {example_facts.PREFIX_MIN} hex digits of an example's id",
        )
    if prefix and (id_ := example_facts.known(path, text)):
        return None, id_
    raise example_facts.unknown(path, text) if number is None else example_facts.unknown_step(path, number)


# --- export: rows that other programs train with ------------------------------------------------------------------

PROGRESS_S = 2.0
EVERY = "all"
_ACCEPTED = """
    SELECT e.id, e.state, e.source, e.line, e.step, e.at, accepted.kind, accepted.version, accepted.body
    FROM (SELECT id, state, source, line, step, at, seq FROM examples WHERE {which}) AS e
    JOIN events AS accepted ON accepted.seq = e.seq ORDER BY e.seq
"""


def add_export(parser: argparse.ArgumentParser) -> None:
    from apollod.curation.exports import FORMS  # reads conversations, which takes time to import

    ctl.options(parser, _export)
    parser.add_argument("--format", required=True, choices=sorted(FORMS), help="what the lines are")
    parser.add_argument(
        "--state", action="append", choices=(*STATES, EVERY),
        help="only those in this state (default trained); repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--where", metavar="SQL", default="",
        help="and for which this holds, over the view `examples`: \"tier = 'direct'\"",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="instead of standard output; it appears when it is whole"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time limit until the first example, and between two (default 60)"
    )
    ctl.of_a_copy(parser)


def _export(args: argparse.Namespace) -> int:
    if args.json and not args.output:
        raise ConfigError("--json is one object, and the rows are many", "give -o FILE as well, or leave --json out")
    path = ctl.journal_path(args)
    which = _which(args.state or ["trained"], args.where)
    for part in (args.where, which) if args.where else ():  # one expression, said before a file is begun
        journal_reader.query(path, f"SELECT 1 FROM examples WHERE {part}\n LIMIT 0", seconds=args.seconds)
    notes = Counter[str]()
    with _output(args.output) as out:
        count = _write(_chosen(path, which, args.seconds), args.format, out, notes)
    for note, times in sorted(notes.items()):
        render.say(f"{times} of them: {note}")
    if args.json:
        render.print_object({"format": args.format, "examples": count, "notes": dict(notes)})
    elif args.output or not count:
        render.say(f"{count} examples as {args.format}")
    return 0


def _which(states: list[str], where: str) -> str:
    """SQL over the view `examples`. The line end ends a comment in the given expression."""
    chosen = "1" if EVERY in states else f"state IN {rows.among(dict.fromkeys(states))}"
    return f"{chosen} AND ({where}\n)" if where else chosen


def _chosen(path: str, which: str, seconds: float) -> Iterator["Exported"]:
    """Read examples in the order of acceptance."""
    from apollod.curation.exports import Exported

    for id_, state, source, line, step, at, *event in journal_reader.stream(
        path, _ACCEPTED.format(which=which), seconds
    ):
        accepted = decode_event(*event)
        assert isinstance(accepted, ExampleAccepted), id_
        facts = {"example": id_, "state": state, "source": source, "line": line, "step": step, "at": at}
        yield Exported(id_, json.loads(bytes(accepted.record)), accepted.origin, facts)


def _write(examples: Iterator["Exported"], form: str, out: TextIO, notes: Counter[str]) -> int:
    """Write a line for each example; returns their number."""
    from apollod.curation.exports import FORMS

    to_row, count, told = FORMS[form], 0, time.monotonic()
    for example in examples:
        row = to_row(example)
        if row.note:
            notes[row.note] += 1
        if row.value is None:
            continue
        out.write(json.dumps(row.value, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
        if time.monotonic() > told + PROGRESS_S:
            told = time.monotonic()
            render.say(f"{count} examples so far")
    out.flush()
    return count


@contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that replaces an older one once it is whole."""
    if path is None:
        yield sys.stdout
        return
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "x", encoding="utf-8", newline="\n") as file:
            yield file
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
