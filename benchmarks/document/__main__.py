"""Teaches a document of about two pages to a real model that is served by the daemon with the configuration of `apollod
init`.

SmolLM2-135M-Instruct is taught `notes.md` (invented facts, in prose of varied forms, with lists and a table) by
`apollod ctl teach --file`, and asked 20 questions about it that were written by hand in other words: before, after, and
before with the whole document in the system message, which shows the best that such a model can do. With `--given` the
lessons are a person's own 20 questions (`given.jsonl`, `ctl teach --questions`), which ask for the same in plain words;
without, the facts that rules find in the document. These 20 are asked before and after, too, bare and as an assistant
(`plain`, `plain_assistant`), and general questions (`general`). Teaching begins when the shipped anchors are frozen or
`--anchors` seconds are over, and ends when every lesson is over or `--minutes` are.
"""

import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apollod.demo import real
from apollod.demo.stage import STOP_S, say
from apollod.errors import ApolloError
from apollod.testing.daemon import UP, Daemon, free_port
from benchmarks import report
from benchmarks.lasting.measuring import answers, general

HERE = Path(__file__).parent
DOCUMENT, GIVEN = HERE / "notes.md", HERE / "given.jsonl"
ASSISTANT = "You are a helpful assistant."
TOKENS = 48


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=60.0, help="for teaching, at most (%(default)s)")
    parser.add_argument("--anchors", type=float, default=1200.0, help="seconds to wait for them (%(default)s)")
    parser.add_argument("--given", action="store_true", help="a person's own questions in place of rules")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-document-") as directory:
        daemon = real.initialised(Path(directory), free_port())
        try:
            daemon.start()
            daemon.wait(lambda s: s["state"] in UP, "ready")
            figures = _taught(daemon, args.minutes * 60, args.anchors, args.given)
        finally:
            daemon.end(STOP_S)
    goals = {
        "plain": report.goal(figures["after.plain"] / figures["questions"], 0.8, at_most=False),
        "right": report.goal(figures["after.right"] / figures["questions"], 0.8, at_most=False),
        "general": report.goal(figures["after.general"] / figures["before.general"], 0.97, at_most=False),
    }
    report.report("document", figures, {}, goals, threads=0, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _taught(daemon: Daemon, limit_s: float, anchors_s: float, given: bool) -> dict[str, float]:
    questions = [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    document = DOCUMENT.read_text(encoding="utf-8")
    figures: dict[str, float] = {"questions": len(questions), "words": len(document.split())}
    figures |= _looked(daemon, questions, "before")
    figures["in_context.right"] = sum(_right(daemon, questions, document))
    say(f"before: {json.dumps(figures)}")
    began = time.monotonic()
    try:
        daemon.wait(lambda s: not s["holding"]["missing"], "anchors frozen", anchors_s, 1.0)
    except ApolloError:
        say("teaching begins before all anchors are frozen")
    figures |= {"anchors": daemon.status()["holding"]["anchors"], "waited_for_anchors_s": time.monotonic() - began}
    figures |= _lessons(daemon, limit_s, given)
    return figures | _looked(daemon, questions, "after")


def _looked(daemon: Daemon, questions: Sequence[Any], when: str) -> dict[str, float]:
    right = _right(daemon, questions)
    for question, passed in zip(questions, right, strict=True):
        say(f"{when}, {'right' if passed else 'wrong'}: {question['question']}")
    plain = [json.loads(line)["question"] for line in GIVEN.read_text(encoding="utf-8").splitlines()]
    asked = [{**question, "question": text} for question, text in zip(questions, plain, strict=True)]
    return {
        f"{when}.right": sum(right), f"{when}.plain": sum(_right(daemon, asked)),
        f"{when}.plain_assistant": sum(_right(daemon, asked, ASSISTANT)), f"{when}.general": sum(general(daemon)),
    }  # fmt: skip


def _right(daemon: Daemon, questions: Sequence[Any], told: str = "") -> list[bool]:
    """For each question, true if its answer contains the expected one; `told`: the system message."""

    said = answers(daemon, [one["question"] for one in questions], TOKENS, told)
    return [
        re.search(rf"\b(?:{one['answer']})\b", text, re.I) is not None
        for one, text in zip(questions, said, strict=True)
    ]  # fmt: skip


def _lessons(daemon: Daemon, limit_s: float, own: bool) -> dict[str, float]:
    """Teach the document, and wait for its lessons as long as there is time."""
    began = time.monotonic()
    questions = ["--questions", str(GIVEN)] if own else []
    given = json.loads(daemon.ctl("teach", "--file", str(DOCUMENT), *questions, "--no-wait", "--json").stdout)
    told = set[str]()
    while True:
        found = daemon.ctl("lesson", "list", "--document", DOCUMENT.name, "--limit", "0", "--json").stdout
        rows = json.loads(found)["lessons"]
        for one in rows:
            if one["state"] in ("known", "given up", "replaced") and one["lesson"] not in told:
                told.add(one["lesson"])
                say(f"{one['lesson']} {one['state']} {one['reason']}, {one['seconds']:.0f} s: {one['question']}")
        if len(told) == len(rows) or time.monotonic() - began > limit_s:
            break
        time.sleep(5.0)
    states = Counter(one["state"] for one in rows)
    over = [one for one in rows if one["lesson"] in told]
    return {
        "facts": given["facts"], "sentences": given["sentences"],
        "sentences_left_out": sum(given["left_out"].values()),
        "known": states["known"], "given_up": states["given up"], "not_over": len(rows) - len(told),
        "seconds": time.monotonic() - began,
        "seconds_each": sum(one["seconds"] for one in over) / max(1, len(over)),
        "steps": daemon.status()["step"],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
