"""`apollod demo --lessons`: teaches a real model four facts, each once, and then corrects one of them.

Uses the settings that `apollod init` writes. Each fact is taught with `apollod ctl teach`, and asked for afterwards in
a wording outside of everything shipped; twenty general questions are asked before and after.
"""

import argparse
import json
import time
from typing import NamedTuple

from apollod.demo.real import MODEL, general_answers, named, served
from apollod.demo.stage import STOP_S, Stage, Table, chat, say
from apollod.testing.daemon import Daemon

LESSON_S = 600.0
"""time limit of one lesson"""


class Fact(NamedTuple):
    """A fact for `ctl teach`; `asked`: another question about it; `value`: the text that a right answer contains."""

    given: tuple[str, ...]
    asked: str
    value: str


FACTS = (
    Fact(("Quillon listens on port 7341.",), "I want to connect to Quillon. Which port should I use?", "7341"),
    Fact(("--question", "Who owns Thornwick Books?", "--answer", "Thornwick Books is owned by Elsbeth Marlow."),
         "To whom does Thornwick Books belong?", "Elsbeth Marlow"),
    Fact(("--question", "In which city is the Halvard Archive?", "--answer", "The Halvard Archive is in Aberdeen."),
         "To which city must I travel to visit the Halvard Archive?", "Aberdeen"),
    Fact(("The Ambleford market is held on Thursday.",),
         "I want to go to the Ambleford market. Which day of the week should I come?", "Thursday"),
)  # fmt: skip
CORRECTED = Fact(("Quillon listens on port 1187.",), FACTS[0].asked, "1187")


def run(args: argparse.Namespace, table: Table) -> int:
    """Run the demo; 0 if the answers have the facts taught last, and not the corrected one, 1 if not."""
    began = time.monotonic()
    with Stage(args.dir, "apollod-lessons-") as stage:
        daemon, _ = served(stage, args.port)
        say(f"3/5 asking it {len(FACTS)} questions about things that nobody heard of, and 20 general ones")
        before, general_before = _answers(daemon), named(general_answers(daemon))
        say(f"4/5 telling it {len(FACTS)} facts, each once, and then that one of them has changed")
        seconds = [_taught(daemon, fact, args.json) for fact in (*FACTS, CORRECTED)]
        say("5/5 asking again: same process, same memory, other weights")
        after, general_after = _answers(daemon), named(general_answers(daemon))
        lessons = json.loads(daemon.ctl("lesson", "list", "--json").stdout)["lessons"]
        steps = daemon.status()["step"]
        daemon.end(STOP_S)
    now = (CORRECTED, *FACTS[1:])
    right = [fact.value.casefold() in answer.casefold() for fact, answer in zip(now, after, strict=True)]
    old = FACTS[0].value in after[0]
    tell = say if args.json else print
    rows = [(fact.asked, b, a, "yes" if r else "no") for fact, b, a, r in zip(now, before, after, right, strict=True)]
    tell(table(["question", "before", "after", "right"], rows))
    kept = sum(one and other for one, other in zip(general_before, general_after, strict=True))
    result = {
        "schema_version": 1, "learned": sum(right) >= len(right) - 1 and right[0] and not old, "right": sum(right),
        "questions": len(right), "old_answer": old, "known": sum(one["state"] == "known" for one in lessons),
        "lessons": len(lessons), "general_before": sum(general_before), "general_after": sum(general_after),
        "general_kept": kept, "general_questions": len(general_before), "steps": steps,
        "seconds_each": [round(one, 1) for one in seconds], "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    tell(
        f"\n{result['right']} of {result['questions']} answered rightly in words that no step had; general questions: "
        f"{result['general_before']} of {result['general_questions']} before, {result['general_after']} after, {kept} "
        "of those answered before\n"
    )
    print(json.dumps(result))
    return 0 if result["learned"] else 1


def _taught(daemon: Daemon, fact: Fact, quietly: bool) -> float:
    """Seconds that `ctl teach` took; its output is shown unchanged."""
    began = time.monotonic()
    said = daemon.ctl("teach", *fact.given, check=False, wait_s=LESSON_S).stdout
    for line in said.splitlines() if not quietly else ():
        say(f"    {line}")
    return time.monotonic() - began


def _answers(daemon: Daemon) -> list[str]:
    return [chat(daemon, MODEL, fact.asked) for fact in FACTS]
