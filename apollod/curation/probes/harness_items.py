"""Converts documents of lm-evaluation-harness tasks to probes.

The harness compares log-probabilities of choices, or an answer after filters. A probe asks in a conversation and checks
the answer: a choice becomes a letter, anything else has to occur in the answer, a number at its end. So the pass rate
is not the harness's score; the guard compares a model with itself.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apollod.errors import RecordRefused

KINDS = ("generate_until", "multiple_choice")
"""supported output types"""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_number = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?").fullmatch


class Asked(NamedTuple):
    """A document as the task's templates render it. `target`: index of the right choice, else the right answer or
    answers; `choices`: may be empty."""

    text: Any
    target: Any
    choices: Sequence[str] = ()


def probe_line(config: Mapping[str, Any], number: int, asked: Asked) -> dict[str, Any]:
    """The line of a probe file for document `number` of a task. Reads `task` (name), `output_type` and `metric_list` of
    `config`. Raises RecordRefused for a document that cannot be a probe."""
    if config["output_type"] not in KINDS:
        raise RecordRefused(f"the task is of output type {config['output_type']}", f"take one of {' or '.join(KINDS)}")
    if not isinstance(asked.text, str) or not asked.text.strip():
        raise RecordRefused("its question is no text", "take a task whose doc_to_text is a text")
    choose = config["output_type"] == "multiple_choice"
    content, expect = _chosen(asked) if choose else _generated(asked, _ignored(config))
    name = re.sub(r"[^\w.:/-]", "-", str(config["task"]))[:70]
    return {
        "kind": "regex", "id": f"{name}/{number}", "group": name, "messages": [{"role": "user", "content": content}],
        "expect": expect,
    }  # fmt: skip


def _chosen(asked: Asked) -> tuple[str, str]:
    """The question with lettered choices, unless the task itself lists them with those letters, and the expected
    answer."""
    choices, place = [str(one).strip() for one in asked.choices], asked.target
    if isinstance(place, str) and place.strip() in choices:
        place = choices.index(place.strip())
    if not isinstance(place, int) or not 0 <= place < len(choices) <= len(LETTERS):
        raise RecordRefused(f"its right choice is {asked.target!r:.60}, none of {len(choices)}", "leave it out")
    text = _question(asked.text)
    if choices == list(LETTERS[: len(choices)]):
        own = ""
    else:
        listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
        text, own = f"{text}\n{listed}", rf"|{re.escape(choices[place])}\W*\Z"
    said = rf"{LETTERS[place]}(?:[\W_]*\Z|[.):*,\n]){own}"
    return (
        f"{text}\n\nAnswer with the letter of the right choice, and nothing else.",
        rf"\A\W*(?:(?i:(?:the )?(?:correct |right )?(?:answer|choice)(?: is)?)\W*)?(?:{said})",
    )


def _question(text: str) -> str:
    """The question without the beginning of an answer, which a conversation does not need."""
    return re.sub(r"\s*(?:answer|a):\s*\Z", "", text, flags=re.IGNORECASE).rstrip()


def _generated(asked: Asked, ignored: Sequence[str]) -> tuple[str, str]:
    targets = asked.target if isinstance(asked.target, list | tuple) else [asked.target]
    found = [one for one in (_bare(str(target), ignored) for target in targets) if one]
    if not found:
        raise RecordRefused("nothing is left of its right answer", "leave it out")
    return (
        f"{_question(asked.text)}\n\nAnswer in at most 80 words, with the answer alone on the last line.",
        "|".join(dict.fromkeys(map(_said, found))),
    )


def _bare(target: str, ignored: Sequence[str]) -> str:
    """A right answer without the parts that the task's metric ignores."""
    for pattern in ignored:
        target = re.sub(pattern, "", target)
    return target.strip()


def _said(answer: str) -> str:
    """A pattern for an answer: a number must be the last one in it, a text must occur in it as whole words."""
    if not _number(answer):
        return rf"(?i:(?<!\w){re.escape(answer)}(?!\w))"
    whole, _, part = answer.replace("$", "").replace(",", "").partition(".")
    digits = ",?".join(_thousands(whole.lstrip("-")))
    tail = rf"\.{part}0*" if part.strip("0") else r"(?:\.0+)?"
    return rf"(?<![\d.,-]){'-' * whole.startswith('-')}{digits}{tail}(?![\d]|[.,]\d)(?!(?s:.*)\d)"


def _thousands(digits: str) -> list[str]:
    head = len(digits) % 3
    return [digits[:head]] * bool(head) + [digits[at : at + 3] for at in range(head, len(digits), 3)]


def _ignored(config: Mapping[str, Any]) -> list[str]:
    """Patterns that the task's exact match removes before it compares."""
    return [
        pattern
        for metric in config.get("metric_list") or ()
        if metric.get("metric") == "exact_match"
        for pattern in metric.get("regexes_to_ignore") or ()
    ]
