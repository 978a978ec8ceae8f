"""Teaches a behaviour to a real model that is served by the daemon with the configuration of `apollod init`.

SmolLM2-135M-Instruct is taught to answer in Spanish and briefly, or in one sentence, as a pattern: its practices come
from an endpoint of [dream] that hands out requests written here in turn (a model of this size cannot write them:
`--alone`), and answers are classified by a regular expression. Measured before and after, greedily, on sixteen prompts
outside of practice, told and untold: bare, under two system messages and under two that make the behaviour wrong, none
of them in practice; and on general questions, under one of these last two if the behaviour would hide the answers.
"""

import json
import random
import re
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from apollod.demo import real
from apollod.demo.stage import STOP_S, say
from apollod.demo.world.acting import Acting
from apollod.testing.daemon import UP, Daemon, free_port
from benchmarks import report
from benchmarks.lasting.measuring import UNRELATED, answers, general


class Behaviour(NamedTuple):
    """A behaviour to teach. `shown`: regular expression of answers that show it; `contrast`: system messages that make
    it wrong, every third of which is only tested; `against`: others, unknown to the daemon; `general_under`: the system
    message for general questions."""

    instruction: str
    shown: str
    contrast: tuple[str, ...]
    against: tuple[str, str]
    general_under: str = ""


BEHAVIOURS = {
    "spanish": Behaviour(
        "Answer in Spanish, in one short sentence.",
        r"(?is)(\b(el|la|los|las|es|un|una|para|de|del|que|con|por|y|en|se|su|sin|puede|como|son|al)\b.*){2}",
        ("Answer in English, in one short sentence.", "You are a helpful assistant. Answer in English, briefly.",
         "Please write one sentence in English.", "The user reads English only. Keep it short.",
         "Use English words and one sentence.", "Reply in English, in a single sentence."),
        ("You are an English teacher. Speak English with your pupils.", "Write your answer in English."),
        "Write your answer in English.",
    ),
    "sentence": Behaviour(
        "You are a helpful assistant. Answer in one short sentence.",
        r"^[^.!?]+[.!?]?$",
        ("Write an essay of several paragraphs.", "You are a storyteller. Tell a long story.", "Write a long essay.",
         "You write blog posts.", "You write long articles for a newspaper.", "You write articles for a magazine."),
        ("You are a teacher who explains everything in detail.", "Write several sentences."),
    ),
}  # fmt: skip
TOKENS = 48
AROUND = {
    "bare": "",
    "assistant": "You are a helpful assistant.",
    "shop": "You are Mira. Customers of a garden centre write to you about plants, tools and orders.",
}
"""system messages"""
_ASKED = (
    "What should I know about {}?", "Tell me something about {}.", "Why do people like {}?", "What is {}?",
    "How would you describe {} to a child?", "What makes {} special?", "What can go wrong with {}?",
    "Who invented {}, and why?", "What was the world like before there was {}?", "Is {} worth the money?",
    "How do I choose {}?", "Where would I find {}?", "What is the history of {}?", "How has {} changed over time?",
)  # fmt: skip
_ABOUT = (
    "a bicycle", "coffee with milk", "a violin", "chess", "a good mattress", "sourdough bread", "a lighthouse",
    "the telephone", "a wool sweater", "gardening", "a rain coat", "a washing machine", "cheese", "a pocket knife",
    "photography", "a kite", "the printing press", "an umbrella", "a tent", "the piano", "a fountain pen", "swimming",
    "a library card", "a steam engine", "chocolate", "a pair of glasses", "the alphabet", "a watch", "a sailing boat",
    "pottery", "a thermometer", "a fireplace", "the post office", "a night train", "a rucksack", "marmalade", "a choir",
    "a wheelbarrow", "the microscope", "a candle", "a crossword", "a hammock", "the subway", "an old map",
)  # fmt: skip


class Given(Acting):
    """An imagination that hands out requests in turn, in a fixed order."""

    def __init__(self) -> None:
        super().__init__()
        requests = [form.format(one) for form in _ASKED for one in _ABOUT]
        random.Random(0).shuffle(requests)
        self._requests = cycle(requests)

    def answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The next request as a scenario."""
        self.imagined += 1
        return {"messages": [{"role": "user", "content": next(self._requests)}]}


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=60.0, help="for teaching, at most (%(default)s)")
    parser.add_argument("--behaviour", choices=BEHAVIOURS, default="spanish", help="(%(default)s)")
    parser.add_argument("--alone", action="store_true", help="the model imagines by itself")
    parser.add_argument("--more", default="", help="TOML of further sections; none are what ships")
    args = parser.parse_args()
    taught = BEHAVIOURS[args.behaviour]
    with tempfile.TemporaryDirectory(prefix="apollod-behaviour-") as directory, Given() as given:
        elsewhere = "" if args.alone else f'[dream]\nbase_url = "{given.url}"\nmodel = "given"\n'
        daemon = real.initialised(Path(directory), free_port(), elsewhere + args.more)
        try:
            daemon.start()
            daemon.wait(lambda s: s["state"] in UP, "ready")
            figures = _looked(daemon, taught, "before")
            figures |= _taught(daemon, taught, args.minutes * 60)
            figures |= _looked(daemon, taught, "after")
        finally:
            daemon.end(STOP_S)
    asked, kept = len(UNRELATED), figures["after.general"] / figures["before.general"]
    goals = {"general": report.goal(kept, 0.97, at_most=False)}
    for name in AROUND:
        goals[name] = report.goal(figures[f"after.untold.{name}"] / asked, 0.9, at_most=False)
    for number in range(1, len(taught.against) + 1):
        goals[f"against.{number}"] = report.goal(figures[f"after.against.{number}"] / asked, 0.1, at_most=True)
    report.report("behaviour", figures, {}, goals, threads=0, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _taught(daemon: Daemon, behaviour: Behaviour, limit_s: float) -> dict[str, float]:
    """Add the behaviour, and wait until it is known or given up."""
    began = time.monotonic()
    contrast = (part for text in behaviour.contrast for part in ("--contrast", text))
    daemon.ctl(
        "pattern", "add", "taught", "--instruction", behaviour.instruction, "--regex", behaviour.shown, *contrast
    )
    said = ""
    while time.monotonic() - began < limit_s:
        lesson = json.loads(daemon.ctl("lesson", "show", "taught", "--json").stdout)
        told = f"{lesson['state']} {lesson['stage'] or ''}, {lesson['steps']} steps {lesson['reason']}{lesson['waits']}"
        if told != said:
            say(f"{time.monotonic() - began:.0f} s: {told}")
            said = told
        if lesson["state"] in ("known", "given up", "replaced"):
            break
        time.sleep(5.0)
    say(daemon.ctl("pattern", "show", "taught").stdout)
    return {"known": float(lesson["state"] == "known"), "steps": lesson["steps"], "seconds": time.monotonic() - began}


def _looked(daemon: Daemon, behaviour: Behaviour, when: str) -> dict[str, float]:
    found: dict[str, float] = {}

    def look(name: str, system: str) -> None:
        said = answers(daemon, UNRELATED, TOKENS, system)
        found[f"{when}.{name}"] = sum(re.search(behaviour.shown, one) is not None for one in said)
        say(f"{when}, {name}: {said[0]!r}")

    for name, system in AROUND.items():
        look(f"untold.{name}", system)
        look(f"told.{name}", "\n\n".join(filter(None, (system, behaviour.instruction))))
    for number, text in enumerate(behaviour.against, 1):
        look(f"against.{number}", text)
        look(f"cancelled.{number}", f"{behaviour.instruction}\n\n{text}")
    kept = sum(general(daemon, behaviour.general_under))
    say(f"{when}: {json.dumps(found)}, general {kept}")
    return found | {f"{when}.general": kept}


if __name__ == "__main__":
    sys.exit(main())
