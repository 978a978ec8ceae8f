"""`apollod ctl lesson list|show|replace|forget|practise`: lessons of the model, and whether it knows them."""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

from apollod.adapters.journal.journal_reader import literal
from apollod.adapters.system.clock import iso
from apollod.cli import commands, render
from apollod.cli.control import ctl, pattern, rows, teach
from apollod.core.facts.lessons.stages import LessonState
from apollod.errors import ApolloError, ConfigError
from apollod.wire import control_messages as msg

EPILOG = """\
A lesson is a fact, or the right answer to a question, that the model is taught until it answers it in wordings that it
never practised; or a behaviour that it practises until it shows it untold in situations that it never practised, whose
id is its name. `apollod ctl teach` gives one. docs/teach.md has more.

examples:
  apollod ctl lesson list --state "given up"
  apollod ctl lesson show L3                 what was asked, what was answered before and after
  apollod ctl lesson replace L3 --answer "Quillon listens on port 8802."
  apollod ctl lesson forget L3               taught no more, and out of the weights
  apollod ctl lesson forget --document NOTES.md
  apollod ctl lesson practise L3             asked again now, and practised where it fails
  apollod ctl lesson forget answer-in-one-sentence      a behaviour, and what its dreams taught
"""
REPLACE_EPILOG = """\
examples:
  apollod ctl lesson replace L3 "Quillon listens on port 8802."
  apollod ctl lesson replace L3 --answer "Quillon listens on port 8802."      to the same question

The new lesson counts as known only where the old answer is gone. It is waited for as with `apollod ctl teach`.
"""
Object = Mapping[str, Any]
_COLUMNS: tuple[render.Column, ...] = (
    "lesson", "kind", "state", ("before", lambda one: _pair(one["before"]["bare"])),
    ("told", lambda one: _pair(one["before"]["told"])), ("after", lambda one: _after(one)), "steps",
    ("given", lambda one: render.minute(one["given_at"])), "question", "answer",
)  # fmt: skip
"""Pairs are answers that passed, and answers that were asked for."""
_SAID_MAX = 100
"""Characters of an answer on the page."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "what the model was taught, and whether it knows it"
    commands.epilog(parser, EPILOG)
    states = get_args(LessonState)
    lesson = ctl.argument("lesson", metavar="LESSON", help="its id, such as L3, or the name of a behaviour")
    ctl.actions(
        parser,
        ("list", "the newest lessons, the newest first: answers that passed before and after", _list,
         ctl.argument("--state", choices=states, metavar="STATE", help=f"only these: {', '.join(states)}"),
         commands.limited,
         ctl.argument("--document", metavar="NAME", default="", help="only those of a document, such as NOTES.md"),
         ctl.jsonl, ctl.of_a_copy),
        ("show", "one lesson in full: wordings, what was answered before and after, what comes next", _show, lesson,
         ctl.of_a_copy),
        ("replace", "teach another answer in place of a lesson's; the old one has to go", _replace,
         partial(commands.epilog, text=REPLACE_EPILOG), lesson, teach.what, teach.no_wait),
        ("forget", "teach it no more, and take what its steps taught out of the weights", _forget,
         ctl.argument("lesson", metavar="LESSON", nargs="?", help="its id, such as L3, or the name of a behaviour"),
         ctl.argument("--document", metavar="NAME", help="all lessons of a document, such as NOTES.md")),
        ("practise", "ask it now, whatever is known of it, and practise it where it fails", _practise, lesson,
         teach.no_wait),
    )  # fmt: skip


def _list(args: argparse.Namespace) -> int:
    which = (args.state or "", args.limit)

    def folded(path: str) -> dict[str, Any]:
        from apollod.supervisor.lesson_view import lessons_view

        return lessons_view(rows.folded_state(path), *which, time.time_ns(), args.document)

    found = ctl.ask_or_fold(args, msg.LessonsRequest(*which, args.document), folded)["lessons"]
    if not found and not args.json and not args.jsonl:
        of = f" of {args.document}" if args.document else ""
        none = f"no lesson{of} is {args.state}" if args.state else f"there is no lesson{of}"
        print(f"{none}; `apollod ctl teach --help` says how to give one")
        return 0
    return rows.show_list(args, "lessons", found, _COLUMNS)


def _show(args: argparse.Namespace) -> int:
    found = ctl.ask_or_fold(args, msg.LessonQuestion(args.lesson), partial(_folded, lesson=args.lesson))
    if found["kind"] == "behaviour":
        return _show_behaviour(args, found)
    asked = _rounds(ctl.journal_path(args), found["lesson"])
    return render.show(args, {**found, "rounds": asked}, lambda: _page(found, asked))


def _show_behaviour(args: argparse.Namespace, found: dict[str, Any]) -> int:
    dreams = pattern.newest(args, found["lesson"])
    answer = {**found, "rounds": [], "dreams": dreams}
    pages = _page(found, ())
    return render.show(args, answer, lambda: [*pages, "", pattern.page_with_dreams(found["pattern"], dreams)])


def _folded(path: str, lesson: str) -> dict[str, Any]:
    from apollod.supervisor.lesson_view import found, lesson_view

    state = rows.folded_state(path)
    if (one := found(state, lesson)) is None:
        raise ApolloError(f"the journal has no lesson {lesson}", "`apollod ctl lesson list` has them")
    return lesson_view(state, one, time.time_ns())


def _replace(args: argparse.Namespace) -> int:
    if args.statement is None and args.answer is None:
        raise ConfigError(f"what is right instead of {args.lesson}?", "give a STATEMENT, or --answer A")
    return teach.teach(args, replaces=args.lesson)


def _forget(args: argparse.Namespace) -> int:
    if (args.lesson is None) == (args.document is None):
        raise ConfigError("forget which lesson?", "give LESSON, or --document NAME for all of a document")
    if args.document is not None:
        answer = ctl.ask(ctl.socket_path(args), msg.DocumentForgetRequest(args.document, ctl.by()))
        what = f"{args.document} is taught no more ({len(answer['lessons'])} lessons)"
    else:
        answer = ctl.ask(ctl.socket_path(args), msg.LessonForgetRequest(args.lesson, ctl.by()))
        what = f"{answer['lesson']} is taught no more"
    count = len(answer["forgotten"])
    out = f"{count} examples are taken out of the weights" if count else "no step had learned it"
    return render.show(args, answer, f"{what}; {out}")


def _practise(args: argparse.Namespace) -> int:
    answer = ctl.ask(ctl.socket_path(args), msg.LessonPractiseRequest(args.lesson, ctl.by()))
    if answer["already"]:
        render.say(f"{answer['lesson']} is {answer['state']} already")
    return teach.show_when_known(args, {**answer, "already": False})


# --- for people ---------------------------------------------------------------------------------------------------


def _after(one: Object) -> str:
    """Answers after practice; not while it goes on, since the lesson may not have been tested."""
    return "-" if one["state"] == "practising" else _pair(one["after"]["bare"])


def _page(one: Object, asked: Sequence[Object]) -> list[str]:
    """Lines about a lesson and the rounds in which it was asked, not made safe for a terminal yet. The page of its
    pattern describes a behaviour."""
    fact = one["kind"] != "behaviour"
    lines = [
        *render.fields(
            ("lesson", f"{one['lesson']}, {one['state']}" + (f": {one['reason']}" if one["reason"] else "")),
            ("kind", one["kind"]),
            (
                "given",
                f"{render.minute(one['given_at'])} by {one['by']}"
                + (f", as {one['example']}" if one["example"] else ""),
            ),
            ("document", one["document"]),
            ("statement", fact and one["statement"]),
        ),
        *([f"question    {one['question']}", f"answer      {one['answer']}"] if fact else []),
        *render.fields(
            ("wrong now", ", ".join(one["not_these"])),
            ("figures", "; ".join(teach.figures(one))),
            ("drift", fact and one["steps"] > 0 and f"{one['drift']:.3f} nats a token"),
            ("now", one["stage"] and f"{one['stage']}, round {one['round']}"),
            ("waits for", one["waits"] or one["error"]),
            (
                "asked again",
                ", ".join(f"step {point['step']}: {teach.of_all(point['bare'])}" for point in one["curve"]),
            ),
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
        return f"asked again {render.minute(one['due_at'])}"
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


def _pair(pair: Sequence[int]) -> str:
    return f"{pair[0]}/{pair[1]}" if pair[1] else "-"


def _quoted(text: str) -> str:
    return json.dumps(render.cut(text, _SAID_MAX), ensure_ascii=False)


def _rounds(path: str, lesson: str) -> list[dict[str, Any]]:
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
