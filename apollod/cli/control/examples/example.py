"""`apollod ctl example list|show|approve|decline|hold|edit|withdraw|forget`: the examples that were accepted."""

import argparse
import json
from typing import Any

from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.cli.control.examples import deciding, example_facts, example_text
from apollod.cli.control.quality import learned_facts
from apollod.core.example_state import STATES

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
    listed, shown, approved, declined, held, edited, withdrawn, forgotten = ctl.actions(
        parser,
        ("list", "the newest examples in the order in which they are learned, and what became of them", _list),
        ("show", "one example in full: what it says, where it came from, what became of it", _show),
        ("approve", "learn examples that are held, or that were declined", deciding.approve),
        ("decline", "do not learn examples that are held or wait", deciding.decline),
        ("hold", "have examples that wait, or were declined, wait for a decision", deciding.hold),
        ("edit", "learn something else instead of an example; $EDITOR opens it", deciding.edit),
        ("withdraw", "take examples that wait out of the queue; `ctl relearn` puts them back", deciding.withdraw),
        ("forget", "take what was learned out of the weights, and repeat the steps of all others", deciding.forget),
    )
    for decided in (approved, declined, held):
        deciding.arguments(decided, "kept beside the decision")
    deciding.arguments(forgotten, "kept in the journal")
    deciding.withdraw_arguments(withdrawn)
    deciding.edit_arguments(edited)
    listed.add_argument("--state", choices=STATES, help="only those in this state")
    commands.limited(listed)
    listed.add_argument(
        "--sort", choices=("accepted", "divergence"), default="accepted",
        help="divergence: those first whose answer owes most to what was stripped; what has no score is left out",
    )  # fmt: skip
    ctl.jsonl(listed)
    shown.add_argument("example", metavar="EXAMPLE", help="its id or its first 6 or more digits")
    shown.add_argument("--mask", action="store_true", help="its tokens, and which of them are learned")
    shown.add_argument("--model-dir", metavar="DIR", help="with --mask: take the tokenizer of this model directory")
    ctl.of_a_copy(listed)
    ctl.of_a_copy(shown)


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
    refused = rows.objects(
        path, f"SELECT body ->> '$.reason' AS reason FROM events WHERE kind = 'example.rejected' AND key = '{id_}'"
    )
    found |= {
        "signals": example_facts.signals_of(path, id_), "gain": learned_facts.gain_of(path, id_),
        "lesson": example_facts.lesson_of(path, id_), "replaced": example_facts.replaced_by(path, id_),
    }  # fmt: skip
    looked = rows.objects(
        path,
        f"""SELECT body ->> '$.reason' AS reason FROM events
        WHERE kind = 'example.looked' AND key = '{id_}' AND body ->> '$.known'""",
    )
    said = {"rejected": refused, "held": tried, "skipped": looked or tried}.get(found["state"], [])
    found |= {"steps": [row["step"] for row in tried], "reason": said[-1]["reason"] if said else ""}
    if args.json:
        print(json.dumps({"schema_version": 1, "example": found}))
    else:
        print(_text(found))
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
