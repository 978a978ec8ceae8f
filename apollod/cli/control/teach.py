"""`apollod ctl teach`: gives a fact, a document or a behaviour, waits for its lessons, and reports their end."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import digits
from typing import Any

from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.errors import ApolloError, ConfigError
from apollod.wire import control_messages as msg

EPILOG = """\
examples:
  apollod ctl teach "Quillon listens on port 7341."
  apollod ctl teach --question "What port does Quillon listen on?" --answer "Quillon listens on port 7341."
  apollod ctl teach "The office opens at nine." --no-wait
  apollod ctl teach --file NOTES.md                     each thing that a document says, a lesson each
  apollod ctl teach --file NOTES.md --questions QA.jsonl
  apollod ctl teach --instruction "Answer in one sentence." --check-regex '^[^.!?]+[.!?]?$'

The model is asked first, in wordings that it never practises: bare, and with the fact before its eyes. What it knows
already, or cannot say even then, is not trained. Else it practises other wordings, one step each, until the ones it
never practised are answered bare. It waits behind other lessons; steps of other examples go on in between. Interrupting
this command does not end the lesson: `apollod ctl lesson show ID`.

A document (.md, .txt, .rst) is taught as a group of lessons, each told with the section that it comes from. Questions
are imagined where [dream] names an endpoint, and made by rules else; sentences that say nothing that can be asked for
are counted. Taught again after an edit, what is the same is not taught again, and what changed is replaced. `apollod
ctl lesson list --document NOTES.md` and `lesson forget --document NOTES.md` are for all of it.

An instruction is taught as a behaviour: the model imagines situations, answers them with the instruction, and practises
the answers without it, until situations that it never practised are answered so untold. It is a pattern like those of
`apollod ctl pattern`, which has more to choose, and its name is the lesson's id. Without a check a judge decides.

exit codes: 0 it is known (of a document: at least 80 % of its facts; with --no-wait: it was given), 1 it is not; others
as for `apollod ctl`
"""


WAIT_S = 0.3
OVER = ("known", "given up", "replaced")
"""States that a lesson does not leave by itself."""
_NO_DIGITS = str.maketrans("", "", digits)
"""Takes numbers out of a reason, so that one that counts is told once."""
PROMISED = ("schema_version", "lesson", "state", "before", "after", "kept", "steps", "drift", "seconds")
BESIDE = ("kind", "reason", "question", "answer", "already")
"""Fields of the answer with --json: those of the contract (PROMISED), and others."""
DOCUMENT_WAIT_S = 1.0
GIVEN_S = 3600.0
"""Timeout for giving a document, which an imagination reads section by section."""
ENOUGH = 0.8
"""Share of the facts that have to be known for exit code 0."""
NAMED_MAX = 10
"""Lessons that are named in words; JSON has all."""
BYTES_READ = 4_000_000
"""Most bytes read of a file; the daemon refuses a longer text."""
_LEFT_OUT = {
    "unclear": "say nothing that can be asked for", "secret": "hold a secret or personal data",
    "again": "say what another one says", "contradicts": "answer a question of another one otherwise",
    "more": "are beyond what one document may teach",
}  # fmt: skip
_NOT_TAKEN = {
    "answer": "whose answer does not stand in the section", "off": "that name nothing of it",
    "refused": "that cannot be taught", "told": "that the model cannot answer with the section in view",
}  # fmt: skip
"""Reasons against imagined questions."""
_PAIR = 'write {"question": "...", "answer": "..."}, one a line'

Object = Mapping[str, Any]


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    commands.epilog(parser, EPILOG)
    what(parser)
    parser.add_argument("--file", dest="document", metavar="FILE", help="a document of text or Markdown")
    parser.add_argument(
        "--questions", metavar="FILE",
        help='with --file: your own questions in place of what is found in it, {"question": Q, "answer": A} a line',
    )  # fmt: skip
    parser.add_argument(
        "--forget-removed", action="store_true", help="with --file: forget what an earlier edition said and this not"
    )
    parser.add_argument("--instruction", metavar="TEXT", help="a behaviour: the text that should become unnecessary")
    parser.add_argument("--name", metavar="NAME", help="with --instruction: its id (default: made of its first words)")
    check = parser.add_mutually_exclusive_group()
    check.add_argument("--check-regex", metavar="REGEX", help="with --instruction: found in an answer that shows it")
    check.add_argument("--rubric", metavar="TEXT", help="with --instruction: what the judge is told besides it")
    no_wait(parser)


def what(parser: argparse.ArgumentParser) -> None:
    """Add the options of a fact."""
    parser.add_argument("statement", metavar="STATEMENT", nargs="?", help="one fact, in a sentence")
    parser.add_argument("--question", metavar="Q", help="a question, with --answer: its right answer")
    parser.add_argument("--answer", metavar="A", help="see --question")


def no_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return when it is recorded, before it is known")


def _run(args: argparse.Namespace) -> int:
    if args.document is not None:
        return _document(args)
    if args.questions is not None or args.forget_removed:
        raise ConfigError("of which document?", "give --file, too")
    if args.instruction is not None:
        return _behaviour(args)
    if args.name is not None or args.check_regex is not None or args.rubric is not None:
        raise ConfigError("of which behaviour?", "give --instruction, too")
    if not _is_fact(args):
        raise ConfigError(
            "there is nothing to teach", "give a STATEMENT, --question and --answer, --file FILE or --instruction TEXT"
        )
    return teach(args)


def _document(args: argparse.Namespace) -> int:
    if _is_fact(args):
        raise ConfigError("a document or a fact?", "give --file alone, or the fact alone")
    if args.instruction is not None:
        raise ConfigError("a document or a behaviour?", "give --file alone, or --instruction alone")
    return _teach_document(args)


def _is_fact(args: argparse.Namespace) -> bool:
    return args.statement is not None or args.question is not None or args.answer is not None


def _behaviour(args: argparse.Namespace) -> int:
    from apollod.core.settings import Check, PatternSettings

    if _is_fact(args):
        raise ConfigError("a behaviour or a fact?", "give --instruction alone, or the fact alone")
    check = Check(regex=args.check_regex or "", rubric=args.rubric or "")
    request = msg.TeachRequest(by=ctl.by(), pattern=PatternSettings(args.name or "", args.instruction, check=check))
    return show_when_known(args, ctl.ask(ctl.socket_path(args), request))


def teach(args: argparse.Namespace, replaces: str = "") -> int:
    """Give a fact, and wait for it. Raises ConfigError for half of a lesson, ApolloError if the daemon refuses."""
    if args.statement is not None and args.answer is not None and args.question is None:
        raise ConfigError("an answer to which question?", "give --question, too, or the STATEMENT alone")
    request = msg.TeachRequest(args.statement or "", args.question or "", args.answer or "", replaces, ctl.by())
    return show_when_known(args, ctl.ask(ctl.socket_path(args), request))


def show_when_known(args: argparse.Namespace, given: dict[str, Any]) -> int:
    """Print a lesson once it is over, or with --no-wait as it is now; returns the exit code."""
    found = given if args.no_wait else _waited(ctl.socket_path(args), given)
    found = {**found, "already": given["already"]}
    answer = {name: found[name] for name in (*PROMISED, *BESIDE)}
    render.show(args, answer, sentence(found))
    return 0 if args.no_wait or found["state"] == "known" else 1


def sentence(one: Object) -> str:
    """State of a lesson, with its figures."""
    state = f"{one['lesson']} is {one['state']}" + (f": {one['reason']}" if one["reason"] else "")
    given_before = " (it was given before)" if one.get("already") else ""
    kept = [f"kept {of_all(one['kept'])}"] if one["steps"] and one["kept"][1] else []
    return "; ".join([f"{state}{given_before}", *figures(one), *kept])


def figures(one: Object) -> list[str]:
    """Answers before and after, and what it took."""
    bare, told, after = one["before"]["bare"], one["before"]["told"], one["after"]["bare"]
    parts = [f"bare {of_all(bare)} before" + (f", told {of_all(told)}" if told[1] else "")] if bare[1] else []
    if one["steps"]:
        parts.append(f"{render.counted(one['steps'], 'step')} in {render.duration(one['seconds'])}")
        parts += [f"bare {of_all(after)} after"] if after[1] and one["state"] != "practising" else []
    elif one["state"] == "known":
        parts.append("nothing was trained: the model knew it")
    return parts


def of_all(pair: Sequence[int]) -> str:
    """Answers that passed, and answers that were asked for."""
    return f"{pair[0]} of {pair[1]}"


def _waited(path: str, lesson: dict[str, Any]) -> dict[str, Any]:
    """Wait until a lesson is over; show progress on a terminal, else the reasons for which it waits. Raises ApolloError
    if the daemon cannot go on by itself."""
    watched, said = os.isatty(2), ""
    try:
        while lesson["state"] not in OVER:
            render.progress(_progress(lesson))
            waits = "" if watched else _waits(lesson)
            if waits and (words := waits.translate(_NO_DIGITS)) != said:
                render.say(f"{lesson['lesson']} waits: {waits}")
                said = words
            if lesson["waits"]:
                _check(path, f"lesson {lesson['lesson']} waits", f"lesson show {lesson['lesson']}")
            time.sleep(WAIT_S)
            lesson = ctl.ask(path, msg.LessonQuestion(lesson["lesson"], lesson["given_at"]))
    finally:
        render.progress("")
    return lesson


def _progress(lesson: Mapping[str, Any]) -> str:
    """One line of about the width of a terminal."""
    parts = [f"{lesson['lesson']} {lesson['state']}"]
    if lesson["stage"]:
        passed, of = lesson["asked"] if lesson["asked"][1] else lesson["after"]["bare"]
        parts += [f"round {lesson['round']}: {lesson['stage']}", *([f"{passed} of {of}"] if of else [])]
        parts += [f"{lesson['steps']} steps, {lesson['seconds']:.0f} s"]
    if waits := _waits(lesson):
        parts.append(f"waits: {waits}")
    return ", ".join(parts)


def _waits(lesson: Mapping[str, Any]) -> str:
    return str(lesson["waits"] or lesson["error"])


def _check(path: str, waits: str, verb: str) -> None:
    """Raise ApolloError if the daemon cannot go on by itself. `verb`: of `apollod ctl`, which tells the progress."""
    now = ctl.status(path)
    if now.state in ("degraded", "stopping"):
        raise ApolloError(
            f"the daemon is {now.state}{f': {now.error}' if now.error else ''}; {waits}",
            f"see `apollod ctl status`; afterwards `apollod ctl {verb}` says how far it is",
        )


# --- documents ----------------------------------------------------------------------------------------------------


def _teach_document(args: argparse.Namespace) -> int:
    """Give the document, and wait for its lessons. Raises ConfigError for files that cannot be read."""
    path = Path(args.document)
    pairs = _pairs(args.questions) if args.questions else []
    request = msg.TeachDocumentRequest(path.name, _read(path), pairs, args.forget_removed, ctl.by())
    given = ctl.ask(ctl.socket_path(args), request, GIVEN_S)
    _say(_given(given))
    lessons = given["lessons"]
    if not args.no_wait:
        lessons = _all_waited(ctl.socket_path(args), given["document"], lessons)
    known = sum(one["state"] == "known" for one in lessons)
    render.show(args, {**given, "lessons": lessons, "known": known}, _came_of(lessons, args.no_wait))
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


def _given(given: Object) -> list[str]:
    """Lines about a document that was given: its facts; those left out, taught already, changed or removed."""
    sentences = render.counted(given["sentences"], "sentence")
    lines = [f"{given['document']}: {render.counted(given['facts'], 'fact')} in {sentences}"]
    for why, count in given["left_out"].items():
        of = f"{count} of {sentences} {_LEFT_OUT.get(why, why)}"
        lines.append(f"left out: {count} imagined {_NOT_TAKEN[why]}" if why in _NOT_TAKEN else of)
    if given["already"]:
        lines.append(f"{len(given['already'])} taught already: {_named(given['already'])}")
    if given["changed"]:
        lines.append(f"{len(given['changed'])} changed, and replaced: {_named(given['changed'])}")
    if removed := given["removed"]:
        what = "forgotten" if given["forgotten"] else "still taught; --forget-removed forgets them"
        lines.append(f"{len(removed)} not said any more ({what}): {_named([one['lesson'] for one in removed])}")
    return lines


def _all_waited(path: str, document: str, lessons: Sequence[Object]) -> list[Object]:
    """Wait until all lessons are over; print a line for each that is."""
    rows, told = {one["lesson"]: one for one in lessons}, set[str]()
    while True:
        for id_, one in rows.items():
            if one["state"] in OVER and id_ not in told:
                told.add(id_)
                _say([f"{len(told)} of {len(rows)}: {_line(one)}"])
        if len(told) == len(rows):
            return list(rows.values())
        _check(path, f"{len(rows) - len(told)} lessons wait", f"lesson list --document {document}")
        time.sleep(DOCUMENT_WAIT_S)
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
    said = f"{render.counted(len(lessons), 'fact')}: {', '.join(parts)}{why}"
    if waiting:
        return said
    before, of = (sum(one["before"]["bare"][n] for one in lessons) for n in (0, 1))
    after, of_after = (sum(one["after"]["bare"][n] for one in lessons) for n in (0, 1))
    return f"{said}; in other wordings right {before} of {of} before, {after} of {of_after} after"


def _short(reason: str) -> str:
    return reason.split(":")[0].split(";")[0].split(" (")[0]


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:NAMED_MAX]) + (", ..." if len(ids) > NAMED_MAX else "")


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        print(render.plain(line), file=sys.stderr)
