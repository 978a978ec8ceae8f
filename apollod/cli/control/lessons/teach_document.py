"""`apollod ctl teach --file`: a document is given, its lessons are waited for, and what came of them is said."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.control.lessons.until_known import OVER, check
from apollod.cli.control.review.deciding import by
from apollod.errors import ConfigError
from apollod.wire import control_messages as msg

WAIT_S = 1.0
GIVEN_S = 3600.0
"""an imagination reads a document section by section"""
ENOUGH = 0.8
"""share of the facts that have to be known for exit code 0"""
NAMED_MAX = 10
"""lessons that are named in words; JSON has all"""
BYTES_READ = 4_000_000
"""of a file: the daemon says what is too long"""
_LEFT_OUT = {
    "unclear": "say nothing that can be asked for", "secret": "hold a secret or personal data",
    "again": "say what another one says", "contradicts": "answer a question of another one otherwise",
    "more": "are beyond what one document may teach",
}  # fmt: skip
_NOT_TAKEN = {
    "answer": "whose answer does not stand in the section", "off": "that name nothing of it",
    "refused": "that cannot be taught", "told": "that the model cannot answer with the section in view",
}  # fmt: skip
"""questions that were imagined"""

Object = Mapping[str, Any]


def teach(args: argparse.Namespace) -> int:
    """Give the document, and wait for its lessons. Raises ConfigError for files that cannot be read."""
    path = Path(args.document)
    pairs = _pairs(args.questions) if args.questions else []
    request = msg.TeachDocumentRequest(path.name, _read(path), pairs, args.forget_removed, by())
    given = ctl.ask(ctl.socket_path(args), request, GIVEN_S)
    _say(_given(given))
    lessons = given["lessons"] if args.no_wait else _waited(ctl.socket_path(args), given["document"], given["lessons"])
    known = sum(one["state"] == "known" for one in lessons)
    ctl.show(args, {**given, "lessons": lessons, "known": known}, _came_of(lessons, args.no_wait))
    return 0 if args.no_wait or known >= ENOUGH * len(lessons) else 1


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(BYTES_READ)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "give a file of text or Markdown") from error


def _pairs(path: str) -> list[tuple[str, str]]:
    """Questions and answers, one JSON object a line. Raises ConfigError with the first bad line."""
    found = list[tuple[str, str]]()
    for number, line in enumerate(_read(Path(path)).splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
            question, answer = one["question"], one["answer"]
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{path}, line {number}, is no question with its answer", _PAIR) from error
        if not isinstance(question, str) or not isinstance(answer, str):
            raise ConfigError(f"{path}, line {number}: question and answer have to be texts", _PAIR)
        found.append((question, answer))
    if not found:
        raise ConfigError(f"{path} has no questions", _PAIR)
    return found


_PAIR = 'write {"question": "...", "answer": "..."}, one a line'


def _given(given: Object) -> list[str]:
    """Lines about a document that was given: its facts, what was left out, taught already, changed or removed."""
    lines = [f"{given['document']}: {_counted(given['facts'], 'fact')} in {_counted(given['sentences'], 'sentence')}"]
    for why, count in given["left_out"].items():
        of = f"{count} of {_counted(given['sentences'], 'sentence')} {_LEFT_OUT.get(why, why)}"
        lines.append(f"left out: {count} imagined {_NOT_TAKEN[why]}" if why in _NOT_TAKEN else of)
    if given["already"]:
        lines.append(f"{len(given['already'])} taught already: {_named(given['already'])}")
    if given["changed"]:
        lines.append(f"{len(given['changed'])} changed, and replaced: {_named(given['changed'])}")
    if removed := given["removed"]:
        what = "forgotten" if given["forgotten"] else "still taught; --forget-removed forgets them"
        lines.append(f"{len(removed)} not said any more ({what}): {_named([one['lesson'] for one in removed])}")
    return lines


def _waited(path: str, document: str, lessons: Sequence[Object]) -> list[Object]:
    """The lessons when nothing more becomes of any by itself; a line for each that is over."""
    rows, told = {one["lesson"]: one for one in lessons}, set[str]()
    while True:
        for id_, one in rows.items():
            if one["state"] in OVER and id_ not in told:
                told.add(id_)
                _say([f"{len(told)} of {len(rows)}: {_line(one)}"])
        if len(told) == len(rows):
            return list(rows.values())
        check(path, f"{len(rows) - len(told)} lessons wait", f"lesson list --document {document}")
        time.sleep(WAIT_S)
        for one in ctl.ask(path, msg.LessonsRequest("", 0, document))["lessons"]:
            if one["lesson"] in rows:
                rows[one["lesson"]] = one
        for id_, one in rows.items():
            if one["document"] != document and one["state"] not in OVER:
                rows[id_] = ctl.ask(path, msg.LessonQuestion(id_))


def _line(one: Object) -> str:
    reason = f" ({one['reason']})" if one["reason"] else ""
    return f"{one['lesson']} {one['state']}{reason}: {one['question']} {one['answer']}"


def _came_of(lessons: Sequence[Object], waiting: bool) -> str:
    """The figures, such as "23 facts: known 20, given up 3 (the model cannot answer it even when told: 3)"."""
    states = Counter(one["state"] for one in lessons)
    whys = Counter(_short(one["reason"]) for one in lessons if one["state"] == "given up")
    parts = [f"{state} {count}" for state, count in states.most_common()]
    why = f" ({'; '.join(f'{reason}: {count}' for reason, count in whys.most_common())})" if whys else ""
    said = f"{_counted(len(lessons), 'fact')}: {', '.join(parts)}{why}"
    if waiting:
        return said
    before, of = (sum(one["before"]["bare"][n] for one in lessons) for n in (0, 1))
    after, of_after = (sum(one["after"]["bare"][n] for one in lessons) for n in (0, 1))
    return f"{said}; in other wordings right {before} of {of} before, {after} of {of_after} after"


def _short(reason: str) -> str:
    return reason.split(":")[0].split(";")[0].split(" (")[0]


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:NAMED_MAX]) + (", ..." if len(ids) > NAMED_MAX else "")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        print(render.plain(line), file=sys.stderr, flush=True)
