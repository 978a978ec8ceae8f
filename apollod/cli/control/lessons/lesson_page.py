"""Lessons as a person reads them: one sentence, the cells of a table, a page of one. Pure."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.cli import render

Object = Mapping[str, Any]
COLUMNS = ("lesson", "kind", "state", "before", "told", "after", "steps", "given", "question", "answer")
_SAID_MAX = 100
"""characters of an answer on the page"""


def sentence(one: Object) -> str:
    """What became of it, with the figures."""
    state = f"{one['lesson']} is {one['state']}" + (f": {one['reason']}" if one["reason"] else "")
    given_before = " (it was given before)" if one.get("already") else ""
    kept = [f"kept {_of(one['kept'])}"] if one["steps"] and one["kept"][1] else []
    return "; ".join([f"{state}{given_before}", *_figures(one), *kept])


def cells(lessons: Sequence[Object]) -> list[tuple[Any, ...]]:
    """Rows of a table; pairs are answers that passed, and how many were asked."""
    return [
        (
            one["lesson"], one["kind"], one["state"], _pair(one["before"]["bare"]), _pair(one["before"]["told"]),
            _after(one), one["steps"], _minute(one["given_at"]), one["question"], one["answer"],
        )
        for one in lessons
    ]  # fmt: skip


def _after(one: Object) -> str:
    """Not while it is practised: it may not have been tested since."""
    return "-" if one["state"] == "practising" else _pair(one["after"]["bare"])


def page(one: Object, asked: Sequence[Object]) -> list[str]:
    """Lines about a lesson and the rounds in which it was asked; what comes from outside is not made harmless yet. What
    a behaviour is, its pattern's page says."""
    fact = one["kind"] != "behaviour"
    lines = [
        f"lesson      {one['lesson']}, {one['state']}" + (f": {one['reason']}" if one["reason"] else ""),
        f"kind        {one['kind']}",
        f"given       {_minute(one['given_at'])} by {one['by']}" + (f", as {one['example']}" if one["example"] else ""),
        *([f"document    {one['document']}"] if one["document"] else []),
        *([f"statement   {one['statement']}"] if fact and one["statement"] else []),
        *([f"question    {one['question']}", f"answer      {one['answer']}"] if fact else []),
        *([f"wrong now   {', '.join(one['not_these'])}"] if one["not_these"] else []),
        *([f"figures     {'; '.join(figures)}"] if (figures := _figures(one)) else []),
        *([f"drift       {one['drift']:.3f} nats a token"] if fact and one["steps"] else []),
        *([f"now         {one['stage']}, round {one['round']}"] if one["stage"] else []),
        *([f"waits for   {one['waits'] or one['error']}"] if one["waits"] or one["error"] else []),
        *_again(one),
    ]
    if one["held_out"]:
        lines += ["", "held out: asked, never practised", *_wordings(one["held_out"], asked)]
        lines += ["", "practised", *_wordings(one["practice"], ())]
    if asked:
        lines += ["", "asked", *(f"    {_round(each)}" for each in asked)]
    return lines


def _again(one: Object) -> list[str]:
    points = [f"step {point['step']}: {_of(point['bare'])}" for point in one["curve"]]
    lines = [f"asked again {', '.join(points)}"] if points else []
    if one["due_at"] is not None:
        return [*lines, f"next        asked again {_minute(one['due_at'])}"]
    return [*lines, *([f"next        asked again at step {one['due_step']}"] if one["due_step"] else [])]


def _wordings(wordings: Sequence[Object], asked: Sequence[Object]) -> list[str]:
    """Each with its greedy answers: the first bare one, the one with the fact told, and the last bare one."""
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
    """One line: how many passed, of the greedy answers and of the sampled ones."""
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
