"""Measures false alarms of the quality guard and the cost of its looks, with the file that `apollod init` writes, on a
real model: `python -m benchmarks.guard_default`.

SmolLM2-135M-Instruct is served and taught eight lessons that no model knows, and given a file of 24 good lines; then
the daemon stays idle until the guard has nothing left to check, or `--quiet` seconds are over. Figures come from the
journal: seconds of the baseline, of looks and of steps, the number of alarms, and the least figure of each metric at a
look.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apollod.demo import real
from apollod.demo.stage import STOP_S, say
from apollod.testing.daemon import UP, Daemon, DaemonFailed, Status, free_port
from benchmarks import report
from benchmarks.lasting.facts import facts

COST = 0.05
LESSONS = 8
LEARN_S = 900.0
GOOD = (
    ("What should I pack for a day at the beach?", "Pack a towel, sunscreen, water, a hat and something to read."),
    ("How do I boil an egg?", "Put the egg into boiling water for eight minutes, then cool it in cold water."),
    ("Give me a tip for sleeping better.", "Go to bed at the same time every day and keep the room dark and cool."),
    ("Why is exercise good for me?", "Exercise strengthens the heart and muscles and improves the mood."),
    ("How can I learn a language faster?", "Speak a little every day, and read texts that are only slightly too hard."),
    ("What is a good way to thank a colleague?", "Tell them exactly what they did and how it helped you."),
    ("How do I remove a coffee stain?", "Rinse it with cold water, then rub in a little soap before you wash it."),
    (
        "What can I cook with rice and beans?",
        "Fry onions, add spices, the beans and cooked rice, and top it with salsa.",
    ),
    ("How do I write a polite reminder?", "Name the matter, the date that was agreed on, and what you need by when."),
    ("What is a budget?", "A budget is a plan of what you earn and what you spend in a certain time."),
    ("How do I keep basil alive?", "Give it light, water it from below, and cut the tips so that it grows bushy."),
    ("Why do cats purr?", "Cats purr when they are content, and sometimes to calm themselves."),
    (
        "How do I change a bicycle tube?",
        "Take off the wheel, lever off the tyre, and put in the new tube with little air.",
    ),
    ("What does a librarian do?", "A librarian keeps a collection in order and helps people find what they need."),
    ("How can I remember names?", "Repeat the name when you hear it and connect it with a picture."),
    ("What is a simple breakfast?", "Oats with milk and a cut apple make a simple breakfast."),
    ("How do I start running?", "Start with one minute of running and two of walking, three times a week."),
    ("Why do leaves fall in autumn?", "Trees drop their leaves to save water and energy in the cold season."),
    ("How should I store bread?", "Keep bread in a paper bag or a box, and freeze what you do not eat soon."),
    (
        "What makes a good presentation?",
        "One clear message, few words on each page, and examples that people remember.",
    ),
    ("How do I clean a keyboard?", "Unplug it, shake out the crumbs, and wipe the keys with a damp cloth."),
    ("What is a thesaurus for?", "A thesaurus lists words with similar meanings, so that you find a better one."),
    ("How do bridges carry weight?", "A bridge leads the weight through its beams or cables into the ground."),
    ("What can I do on a rainy day?", "Read, bake, play a board game, or visit a museum."),
)


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--more", default="", help="lines of configuration besides those of init")
    parser.add_argument("--lessons", type=int, default=LESSONS, help="that are taught (%(default)s)")
    parser.add_argument("--quiet", type=float, default=120.0, help="seconds, at most, at the end (%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-guard-") as directory:
        daemon = real.initialised(Path(directory), free_port(), args.more, guarded=True)
        try:
            figures = _life(daemon, args.lessons, args.quiet)
        finally:
            daemon.end(STOP_S)
    goals = {
        "alarms": report.goal(figures["alarms"], 0, at_most=True),
        "cost": report.goal(figures["look_s"] / max(1e-9, figures["step_s"]), COST, at_most=True),
    }
    report.report("guard_default", figures, {}, goals, threads=0, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _life(daemon: Daemon, lessons: int, quiet_s: float) -> dict[str, float]:
    daemon.start()
    daemon.wait(lambda s: s["state"] in UP, "ready")
    began = time.monotonic()
    for number, fact in enumerate(facts(80)[: 10 * lessons : 10]):
        words = ("ctl", "teach", "--question", fact.question, "--answer", fact.answer, "--json")
        done = subprocess.run(daemon.command(*words), capture_output=True, text=True, timeout=LEARN_S, check=False)
        if not done.stdout:
            raise DaemonFailed(f"lesson {number + 1} could not be taught ({done.returncode})", done.stderr)
        one = json.loads(done.stdout)  # the first lesson waits for the baseline
        say(f"lesson {number + 1}: {one['state']}, {one['steps']} steps, {time.monotonic() - began:.0f} s")
    turns = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in GOOD]
    daemon.drop("good.jsonl", *(json.dumps({"messages": one}) for one in turns))
    daemon.wait(lambda s: s["queue"]["trained"] >= len(GOOD) and not s["queue"]["pending"], "learned", LEARN_S, 1.0)
    busy, deadline = time.monotonic() - began, time.monotonic() + quiet_s
    daemon.wait(lambda s: _at_rest(s) or time.monotonic() > deadline, "at rest", quiet_s + 600.0, 1.0)
    return {"busy_s": busy, "wall_s": time.monotonic() - began, **_told(daemon)}


def _at_rest(status: Status) -> bool:
    """True if nothing was learned since the last look."""
    quality = status["quality"]
    return bool(quality["step"] == status["step"] and not quality["running"] and not quality["due"])


def _told(daemon: Daemon) -> dict[str, float]:
    """The figures from the journal."""
    rows = daemon.query("SELECT body FROM events WHERE kind = 'quality.measured' ORDER BY seq")
    measured = [json.loads(body) for (body,) in rows]
    looks = [one for one in measured if one["why"] != "baseline"]
    for one in measured:
        say(f"{one['why']} at step {one['step']}: {one['seconds']:.1f} s, share {one['share']:.2f}, {_means(one)}")
    steps = [seconds for (seconds,) in daemon.query("SELECT seconds FROM steps")]
    (alarms,) = daemon.query("SELECT count(*) FROM events WHERE kind = 'quality.alarmed'")[0]
    return {
        "looks": float(len(looks)), "alarms": float(alarms), "steps": float(len(steps)), "step_s": sum(steps),
        "step_s_median": statistics.median(steps) if steps else 0.0,
        "baseline_s": sum(one["seconds"] for one in measured if one["why"] == "baseline"),
        "look_s": sum(one["seconds"] for one in looks),
        "known": float(len(daemon.query("SELECT 1 FROM events WHERE kind = 'lesson.known' GROUP BY key"))),
        **_least(looks),
    }  # fmt: skip


def _means(measured: dict[str, Any]) -> str:
    found = {name: _mean(items) for name, items in sorted(measured["figures"].items())}
    return ", ".join(f"{name} {value:.2f} of {len(measured['figures'][name])}" for name, value in found.items())


def _mean(items: dict[str, float | None]) -> float:
    return statistics.fmean([value or 0.0 for value in items.values()] or [0.0])


def _least(looks: list[dict[str, Any]]) -> dict[str, float]:
    """The least pass rate of all looks, by group."""
    found: dict[str, float] = {}
    for one in looks:
        for name, items in one["figures"].items():
            if name.endswith(".passed"):
                found[name] = min(found.get(name, 1.0), _mean(items))
    return {f"least_{name}": value for name, value in found.items()}


if __name__ == "__main__":
    sys.exit(main())
