"""A behaviour taught to a real model that is served by the daemon with what `apollod init` writes.

SmolLM2-135M-Instruct is taught README's example, to answer in one sentence, with `apollod ctl teach --instruction`: it
imagines what it practises itself, since there is no endpoint of [dream], and answers are told apart by a regular
expression. Asked before and after, greedily: sixteen prompts that nobody practises, told and untold, bare and under two
system messages; and general questions, of which it is to keep what it knew.
"""

import json
import re
import sys
import tempfile
import time
from pathlib import Path

from apollod.demo import real
from apollod.demo.stage import STOP_S, say
from apollod.testing.daemon import UP, Daemon, free_port
from benchmarks import report
from benchmarks.lasting.measuring import UNRELATED, answers, general

INSTRUCTION = "Answer in one sentence."
SHOWN = "^[^.!?]+[.!?]?$"
TOKENS = 96
AROUND = {
    "bare": "",
    "assistant": "You are a helpful assistant.",
    "shop": "You are Mira. Customers of a garden centre write to you about plants, tools and orders.",
}
"""system messages"""


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=60.0, help="for teaching, at most (%(default)s)")
    parser.add_argument("--instruction", default=INSTRUCTION, help="(%(default)s)")
    parser.add_argument("--shown", default=SHOWN, help="regular expression of answers that show it")
    parser.add_argument("--more", default="", help="TOML of further sections; none are what ships")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-behaviour-") as directory:
        daemon = real.initialised(Path(directory), free_port(), args.more)
        try:
            daemon.start()
            daemon.wait(lambda s: s["state"] in UP, "ready")
            figures = _looked(daemon, args.instruction, args.shown, "before")
            figures |= _taught(daemon, args.instruction, args.shown, args.minutes * 60)
            figures |= _looked(daemon, args.instruction, args.shown, "after")
        finally:
            daemon.end(STOP_S)
    asked, kept = len(UNRELATED), figures["after.general"] / figures["before.general"]
    goals = {
        name: report.goal(figures[f"after.untold.{name}"] / asked, 0.9, at_most=False) for name in AROUND
    } | {"general": report.goal(kept, 0.97, at_most=False)}  # fmt: skip
    report.report("behaviour", figures, {}, goals, threads=0, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _taught(daemon: Daemon, instruction: str, shown: str, limit_s: float) -> dict[str, float]:
    """Give it, and wait until it is known or given up."""
    began = time.monotonic()
    daemon.ctl("teach", "--instruction", instruction, "--name", "taught", "--check-regex", shown, "--no-wait")
    said = ""
    while time.monotonic() - began < limit_s:
        lesson = json.loads(daemon.ctl("lesson", "show", "taught", "--json").stdout)
        told = f"{lesson['state']} {lesson['stage']}, {lesson['steps']} steps {lesson['reason']}{lesson['waits']}"
        if told != said:
            say(f"{time.monotonic() - began:.0f} s: {told}")
            said = told
        if lesson["state"] in ("known", "given up", "replaced"):
            break
        time.sleep(5.0)
    say(daemon.ctl("pattern", "show", "taught").stdout)
    return {"known": float(lesson["state"] == "known"), "steps": lesson["steps"], "seconds": time.monotonic() - began}


def _looked(daemon: Daemon, instruction: str, shown: str, when: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, system in AROUND.items():
        for way, told in (("untold", ""), ("told", instruction)):
            said = answers(daemon, UNRELATED, TOKENS, "\n\n".join(filter(None, (system, told))))
            found[f"{when}.{way}.{name}"] = sum(re.search(shown, one) is not None for one in said)
            say(f"{when}, {way}, {name}: {said[0]!r}")
    kept = sum(general(daemon))
    say(f"{when}: {json.dumps(found)}, general {kept}")
    return found | {f"{when}.general": kept}


if __name__ == "__main__":
    sys.exit(main())
