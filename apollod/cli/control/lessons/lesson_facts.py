"""Reads a lesson from the journal: its answers, and the steps that practised it."""

import json
from typing import Any

from apollod.adapters.journal.journal_reader import literal
from apollod.adapters.system.clock import iso
from apollod.cli.control.questions import rows


def rounds(path: str, lesson: str) -> list[dict[str, Any]]:
    """Every time that it was asked, the oldest first. `answers`: to held-out wordings; `seed`: null for the greedy
    answer. `lesson`: an id that the daemon or a fold of the journal gave."""
    found = rows.tuples(
        path,
        f"SELECT seq, at_ns, body FROM events WHERE kind = 'lesson.asked' AND key = {literal(lesson)} ORDER BY seq",
    )
    return [_round(seq, at_ns, json.loads(body)) for seq, at_ns, body in found]


def _round(seq: int, at_ns: int, body: dict[str, Any]) -> dict[str, Any]:
    answers = [
        {"wording": said["wording"], "seed": said.get("seed"), "passed": said["passed"], "text": said["text"]}
        for said in body["answers"]
    ]
    return {
        "seq": seq, "at": iso(at_ns), "stage": body["stage"], "mode": body["mode"], "round": body["round"],
        "step": body.get("weights_version"), "answers": answers,
    }  # fmt: skip
