"""Lessons as a person reads them: one sentence, columns of a table, a page of one, with the answers in the journal."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.journal.journal_reader import literal
from apollod.adapters.system.clock import iso
from apollod.cli import render
from apollod.cli.control import rows

Object = Mapping[str, Any]
COLUMNS: tuple[render.Column, ...] = (
    "lesson", "kind", "state", ("before", lambda one: _pair(one["before"]["bare"])),
    ("told", lambda one: _pair(one["before"]["told"])), ("after", lambda one: _after(one)), "steps",
    ("given", lambda one: _minute(one["given_at"])), "question", "answer",
)  # fmt: skip
"""Pairs are answers that passed, and answers that were asked for."""
_SAID_MAX = 100
"""Characters of an answer on the page."""


def sentence(one: Object) -> str:
    """State of a lesson, with its figures."""
    state = f"{one['lesson']} is {one['state']}" + (f": {one['reason']}" if one["reason"] else "")
    given_before = " (it was given before)" if one.get("already") else ""
    kept = [f"kept {_of(one['kept'])}"] if one["steps"] and one["kept"][1] else []
    return "; ".join([f"{state}{given_before}", *_figures(one), *kept])


def _after(one: Object) -> str:
    """Answers after practice; not while it goes on, since the lesson may not have been tested."""
    return "-" if one["state"] == "practising" else _pair(one["after"]["bare"])


def page(one: Object, asked: Sequence[Object]) -> list[str]:
    """Lines about a lesson and the rounds in which it was asked, not made safe for a terminal yet. The page of its
    pattern describes a behaviour."""
    fact = one["kind"] != "behaviour"
    lines = [
        *render.fields(
            ("lesson", f"{one['lesson']}, {one['state']}" + (f": {one['reason']}" if one["reason"] else "")),
            ("kind", one["kind"]),
            (
                "given",
                f"{_minute(one['given_at'])} by {one['by']}" + (f", as {one['example']}" if one["example"] else ""),
            ),
            ("document", one["document"]),
            ("statement", fact and one["statement"]),
        ),
        *([f"question    {one['question']}", f"answer      {one['answer']}"] if fact else []),
        *render.fields(
            ("wrong now", ", ".join(one["not_these"])),
            ("figures", "; ".join(_figures(one))),
            ("drift", fact and one["steps"] > 0 and f"{one['drift']:.3f} nats a token"),
            ("now", one["stage"] and f"{one['stage']}, round {one['round']}"),
            ("waits for", one["waits"] or one["error"]),
            ("asked again", ", ".join(f"step {point['step']}: {_of(point['bare'])}" for point in one["curve"])),
            ("next", _next(one)),
        ),
    ]
    if one["held_out"]:
        lines += ["", "held out: asked, never practised", *_wordings(one["held_out"], asked)]
        lines += ["", "practised", *_wordings(one["practice"], ())]
    if asked:
        lines += ["", "asked", *(f"    {_round(each)}" for each in asked)]
    return lines


def _next(one: Object) -> str:
    if one["due_at"] is not None:
        return f"asked again {_minute(one['due_at'])}"
    return f"asked again at step {one['due_step']}" if one["due_step"] else ""


def _wordings(wordings: Sequence[Object], asked: Sequence[Object]) -> list[str]:
    """Wordings with their greedy answers: the first bare one, the one with the fact told, the last bare one."""
    lines = []
    for number, wording in enumerate(wordings):
        said = [
            (each, answer)
            for each in asked
            for answer in each["answers"]
            if answer["wording"] == number and answer["seed"] is None
        ]
        bare = [one for one in said if one[0]["mode"] == "bare"]
        told = [one for one in said if one[0]["mode"] == "told"]
        lines.append(f"    {_quoted(wording['prompt'])} ({wording['how']})")
        lines += [f"        {_answer(*one)}" for one in (*bare[:1], *told[-1:], *bare[1:][-1:])]
    return lines


def _answer(asked: Object, answer: Object) -> str:
    at = "told" if asked["mode"] == "told" else "bare" if asked["step"] is None else f"step {asked['step']}"
    return f"{at}, {'right' if answer['passed'] else 'wrong'}: {_quoted(answer['text'])}"


def _round(asked: Object) -> str:
    """One line with counts of greedy and of sampled answers that passed."""
    said = asked["answers"]
    greedy, sampled = ([one["passed"] for one in said if (one["seed"] is None) == is_greedy] for is_greedy in (1, 0))
    counts = [f"{sum(passed)} of {len(passed)}{how}" for passed, how in ((greedy, ""), (sampled, " sampled")) if passed]
    at = "" if asked["step"] is None else f", step {asked['step']}"
    how = asked["stage"] if asked["stage"] == asked["mode"] else f"{asked['stage']}, {asked['mode']}"
    return f"{asked['at'][:19]}  {how}{at}: {', '.join(counts)}"


def _figures(one: Object) -> list[str]:
    bare, told, after = one["before"]["bare"], one["before"]["told"], one["after"]["bare"]
    figures = [f"bare {_of(bare)} before" + (f", told {_of(told)}" if told[1] else "")] if bare[1] else []
    if one["steps"]:
        figures.append(f"{one['steps']} step{'s' if one['steps'] > 1 else ''} in {render.duration(one['seconds'])}")
        figures += [f"bare {_of(after)} after"] if after[1] and one["state"] != "practising" else []
    elif one["state"] == "known":
        figures.append("nothing was trained: the model knew it")
    return figures


def _of(pair: Sequence[int]) -> str:
    return f"{pair[0]} of {pair[1]}"


def _pair(pair: Sequence[int]) -> str:
    return f"{pair[0]}/{pair[1]}" if pair[1] else "-"


def _quoted(text: str) -> str:
    text = " ".join(text.split())
    return json.dumps(text if len(text) <= _SAID_MAX else f"{text[: _SAID_MAX - 3]}...", ensure_ascii=False)


def _minute(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def rounds(path: str, lesson: str) -> list[dict[str, Any]]:
    """Rounds in which a lesson was asked, the oldest first. `answers`: to held-out wordings; `seed`: null for the
    greedy answer. `lesson`: an id from the daemon or a fold of the journal."""
    found = rows.tuples(
        path,
        f"SELECT seq, at_ns, body FROM events WHERE kind = 'lesson.asked' AND key = {literal(lesson)} ORDER BY seq",
    )
    return [_asked_round(seq, at_ns, json.loads(body)) for seq, at_ns, body in found]


def _asked_round(seq: int, at_ns: int, body: dict[str, Any]) -> dict[str, Any]:
    answers = [
        {"wording": said["wording"], "seed": said.get("seed"), "passed": said["passed"], "text": said["text"]}
        for said in body["answers"]
    ]
    return {
        "seq": seq, "at": iso(at_ns), "stage": body["stage"], "mode": body["mode"], "round": body["round"],
        "step": body.get("weights_version"), "answers": answers,
    }  # fmt: skip
