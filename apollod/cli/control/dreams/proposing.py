"""`apollod ctl pattern propose`: patterns made of what was stripped, as TOML that can be pasted."""

import argparse
import json
import re
import sys
from typing import Any

from apollod.adapters.journal.journal_reader import stream
from apollod.cli import render
from apollod.cli.control.questions import rows
from apollod.cli.render import toml_value
from apollod.curation.dreaming.proposals import Proposal, Proposals, name_for

SECONDS = 120.0
_LEARNED = "SELECT id FROM examples WHERE state = 'trained'"
_STRIPPED = """
    SELECT key, body ->> '$.removed', coalesce(nullif(body ->> '$.origin.session', ''), body ->> '$.source') FROM events
    WHERE kind = 'example.accepted' AND body ->> '$.source' NOT LIKE 'dream:%'
      AND json_array_length(body, '$.removed') > 0
    ORDER BY seq
"""
_PATTERNS = "SELECT key, body ->> '$.pattern.instruction' FROM events WHERE kind = 'pattern.added' ORDER BY seq"
_PLAIN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*")
"""what a literal string of TOML may hold"""


def run(args: argparse.Namespace, path: str) -> int:
    """Print them. Nothing is begun, and no byte of the journal changes."""
    proposals, taken = counted(path)
    found = []
    for one in proposals.most(args.learned, args.limit):
        name = name_for(one.text, taken)
        taken.append(name)
        found.append(_object(one, name))
    if args.json:
        print(json.dumps({"schema_version": 1, "proposals": found, "too_long": proposals.too_long}))
        return 0
    print("\n\n".join(one["toml"] for one in found), end="\n" if found else "")
    if not found:
        print(
            f"apollod: nothing was stripped from {args.learned} learned examples or more that is no pattern yet; "
            "`strip` of [[watch]], and `apollod ctl bootstrap --strip`, say what is stripped",
            file=sys.stderr,
        )
    return 0


def counted(path: str) -> tuple[Proposals, list[str]]:
    """What a journal says was stripped, and the names that patterns have."""
    learned = {str(id_) for (id_,) in stream(path, _LEARNED, SECONDS)}
    patterns = rows.tuples(path, _PATTERNS)
    proposals = Proposals(instruction for _, instruction in patterns)
    for example, removed, session in stream(path, _STRIPPED, SECONDS):
        texts = [(one["why"], one["text"]) for one in json.loads(removed)]
        proposals.add(texts, example in learned, session)
    return proposals, [str(name) for name, _ in patterns]


def _object(one: Proposal, name: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": name, "instruction": one.text, "examples": one.examples, "learned": one.learned,
        "sessions": len(one.sessions), "wordings": len(one.wordings), "stripped_as": dict(one.whys.most_common()),
    }  # fmt: skip
    return told | {"toml": _toml(told)}


def _toml(p: dict[str, Any]) -> str:
    wordings = f", in {p['wordings']} wordings" if p["wordings"] > 1 else ""
    whys = ", ".join(p["stripped_as"])
    return "\n".join(
        [
            f"# stripped ({whys}) from {p['examples']} examples of {p['sessions']} sessions{wordings}; "
            f"{p['learned']} of them are learned",
            "[[dream.pattern]]",
            f"name = {toml_value(p['name'])}",
            f"instruction = {_long_text(p['instruction'])}",
        ]
    )


def _long_text(text: str) -> str:
    """As it stands, over several lines, where TOML has a form for that."""
    if "\n" not in text or "'''" in text or text.endswith("'") or not _PLAIN.fullmatch(text) or _steers(text):
        return toml_value(text)
    return f"'''\n{text}'''"


def _steers(text: str) -> bool:
    """Would it do something to a terminal?"""
    return render.plain(text) != text
