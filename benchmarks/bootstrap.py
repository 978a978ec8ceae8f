"""Measures in which contexts a behaviour learned from logs of agents shows: the world model, the real daemon, [dream]'s
shipped surroundings.

Conversations of agents that were told to ask before they act, and did, are dropped as a log; `apollod ctl bootstrap
--pattern ask` learns each answer once, without the instruction. The daemon then tests the pattern, and practises it
after a failed test, until it is settled or `--minutes` are over. Measured before, after the bootstrap alone, and at the
end, greedily, on other scenarios: bare and under the opposite, in wordings outside of practice, in each kind of
surroundings. The imagination is scripted.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from apollod.core.surroundings import SURROUNDING_KINDS
from apollod.demo import dreaming
from apollod.demo.stage import STOP_S, say
from apollod.demo.world import instructions, measuring, scenarios
from apollod.demo.world.acting import Acting
from apollod.demo.world.exam import Case, way_in
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import Split
from apollod.testing.daemon import Daemon
from apollod.wire import control_messages as msg
from benchmarks import report

ASK = Instruction("ask")
ASKED = 40
"""questions of each group bare, half as many in each other kind of surroundings"""


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--lines", type=int, default=120, help="answers in the log (%(default)s)")
    parser.add_argument("--minutes", type=float, default=15.0, help="at most, after the bootstrap (%(default)s)")
    args = parser.parse_args()
    questions = [one for one in measuring.asked([ASK], ASKED, around=ASKED // 2) if one.group[1] == "ask"]
    with tempfile.TemporaryDirectory(prefix="apollod-bootstrap-") as directory, Acting(0) as acting:
        root = Path(directory)
        daemon = dreaming.prepared(root, acting.url, [ASK])
        log = root / "log.jsonl"
        log.write_text("".join(f"{json.dumps(one)}\n" for one in _log(args.lines)), encoding="utf-8")
        try:
            dreaming.start(daemon)
            figures = _looked(daemon, questions, "before")
            began = time.monotonic()
            daemon.request(msg.ResumeRequest())
            daemon.ctl("bootstrap", str(log), "--pattern", "ask", "--model", "*", "--wait")
            daemon.request(msg.PauseRequest())
            figures |= {"bootstrap_s": time.monotonic() - began, "steps": daemon.status()["step"]}
            figures |= _looked(daemon, questions, "bootstrapped")
            daemon.request(msg.ResumeRequest())
            figures |= _dreamt(daemon, args.minutes * 60)
            figures |= _looked(daemon, questions, "after")
        finally:
            daemon.end(STOP_S)
    goals = {"settled": report.goal(figures["settled"], 1.0, at_most=False)}
    for kind in SURROUNDING_KINDS:
        for way in ("untold", "opposite"):
            name = way_in(way, kind)
            goals[name] = report.goal(figures[f"after.{name}"] / figures[f"of.{name}"], 0.9, at_most=False)
    report.report("bootstrap", figures, {}, goals, threads=0, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _log(count: int) -> list[dict[str, object]]:
    rng = random.Random(0)
    acts = scenarios.sample(rng, "act", Split.PRACTICE, count)
    return [
        {"messages": conversation(ASK.texts[0], one, instructions.answer(one, [ASK])), "model": "agent"} for one in acts
    ]


def _looked(daemon: Daemon, questions: list[Case], when: str) -> dict[str, float]:
    rates = dreaming.measured(daemon, questions).rates
    found = {f"{when}.{way}": float(rate.passed) for (way, kind), rate in rates.items() if kind == "ask"}
    say(f"{when}: {json.dumps(found)}")
    return found | {f"of.{way}": float(rate.cases) for (way, kind), rate in rates.items() if kind == "ask"}


def _dreamt(daemon: Daemon, limit_s: float) -> dict[str, float]:
    """Wait until the pattern is settled or given up."""
    began, phase = time.monotonic(), ""
    while time.monotonic() - began < limit_s:
        shown = json.loads(daemon.ctl("pattern", "show", "ask", "--json").stdout)["pattern"]
        if shown["state"] != phase:
            say(f"{time.monotonic() - began:.0f} s: {shown['state']} {shown['reason']}")
            phase = shown["state"]
        if phase in ("settled", "retired"):
            break
        time.sleep(2.0)
    daemon.request(msg.PauseRequest())
    daemon.wait(lambda s: not s["running"], "paused", 120.0)
    return {
        "settled": float(phase == "settled"), "practices": float(shown["practices"]),
        "dreamt_s": time.monotonic() - began, "steps_in_all": daemon.status()["step"],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
