"""Measures lasting learning, on a real model served by the daemon with the configuration of `apollod init`.

SmolLM2-135M-Instruct is taught unknown facts, each once in one wording, and asked in two hand-written wordings; then
ten of them are corrected, then more facts follow in two batches. Measured besides, before and after: general questions
(right answers, and how many of the earlier right ones remain), instructions in the system message; and the drift, the
mean KL(before || now) on answers to unrelated prompts. Teaching begins when the shipped anchors are frozen, minutes
after a start; an earlier lesson waits for them.

Arms, each in a daemon of its own and from the same weights: `lessons` with the shipped settings; `told` and `own`
(`[lessons] practice`); `unheld` (`hold = 0`); `file` (a file of the questions and answers, shipped settings); `once`
(each a direct example in its one wording, no lesson, others held as shipped); `plain` (the same, nothing held) at each
of `--rates`, the best by knowledge.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apollod.demo import real
from apollod.demo.stage import STOP_S, say
from apollod.testing.daemon import UP, Daemon, DaemonFailed, free_port
from benchmarks import report
from benchmarks.lasting.facts import Fact, corrected, facts
from benchmarks.lasting.measuring import drift, measured, unrelated

LESSON_S = 900.0
"""time limit of a lesson; if one takes longer, its arm is taught nothing more"""
ANCHORS_S = 1200.0


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--facts", type=int, default=40, help="facts of the first batch (%(default)s)")
    parser.add_argument("--corrections", type=int, default=10, help="of them, at most 10 (%(default)s)")
    parser.add_argument("--more", type=int, default=40, help="facts that follow, in two batches (%(default)s)")
    parser.add_argument("--arms", default="lessons,unheld,plain", help="of these, separated by commas")
    parser.add_argument("--rates", default="1e-4", help="learning rates of `plain`, separated by commas")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="apollod-lasting-") as directory:
        untaught = Path(directory) / "untaught"
        port, config = _freeze(Path(directory) / "daemon", untaught)
        for arm in args.arms.split(","):
            rates = args.rates.split(",") if arm == "plain" else [""]
            for rate in rates:
                name = f"{arm}{rate and '@'}{rate}"
                found = _arm(untaught, port, config, arm, rate, args.facts, args.corrections, args.more)
                say(f"{name}: {json.dumps(found)}")
                figures |= {f"{name}.{key}": value for key, value in found.items()}
    goals = _goals(figures, args.facts) if "lessons" in args.arms else {}
    report.report("lasting", figures, {}, goals, threads=0, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _freeze(root: Path, untaught: Path) -> tuple[int, str]:
    """Port and configuration of a daemon in `root` that froze its anchors and was stopped; all of it is moved to
    `untaught`. A journal names absolute paths, so each arm begins with a copy back at `root`."""
    root.mkdir()
    daemon = real.initialised(root, free_port())
    try:
        daemon.start()
        daemon.wait(lambda s: s["state"] in UP, "ready")
        daemon.wait(lambda s: not s["holding"]["missing"], "anchors frozen", ANCHORS_S, 1.0)
        daemon.stop(STOP_S)
    finally:
        daemon.end(STOP_S)
    shutil.move(root, untaught)
    return daemon.port, (untaught / "apollod.toml").read_text(encoding="utf-8")


def _arm(
    untaught: Path, port: int, config: str, arm: str, rate: str, count: int, corrections: int, more: int
) -> dict[str, float]:
    settings = {
        "told": 'practice = "told"', "own": 'practice = "own"', "unheld": "hold = 0",
        "plain": "hold = 0\ndirect = false", "once": "direct = false",
    }  # fmt: skip
    if rate:
        config = config.replace("[trainer]\n", f"[trainer]\nlr_direct = {rate}\n")
    section = f"\n[lessons]\n{settings[arm]}\n" if arm in settings else ""
    root = untaught.parent / "daemon"
    shutil.copytree(untaught, root)
    daemon = Daemon(root, config + section, port)
    try:
        daemon.start()
        daemon.wait(lambda s: s["state"] in UP, "ready")
        return _life(daemon, untaught / "model", arm, count, corrections, more)
    finally:
        daemon.end(STOP_S)
        shutil.rmtree(root)


def _life(daemon: Daemon, before: Path, arm: str, count: int, corrections: int, more: int) -> dict[str, float]:
    every = facts(count + more)
    first, second = every[:count], every[count:]
    at_first, answers = measured(daemon, first), unrelated(daemon)
    found: dict[str, float] = {"general_before": sum(at_first.general), "told_before": at_first.told,
                               "known_before": sum(one == 2 for one in at_first.known)}  # fmt: skip

    def look(when: str, taught: Sequence[Fact]) -> None:
        now = measured(daemon, taught)
        kept = sum(a and b for a, b in zip(at_first.general, now.general, strict=True))
        say(f"{when}: {now._replace(general=())}, general {sum(now.general)}, kept {kept} of {sum(at_first.general)}")
        daemon.ctl("checkpoint")
        found.update({
            f"{when}.known": sum(one == 2 for one in now.known), f"{when}.asked_right": sum(now.known),
            f"{when}.old": now.old, f"{when}.general": sum(now.general), f"{when}.kept": kept,
            f"{when}.told": now.told, f"{when}.drift": drift(before, daemon.root / "model", answers),
            f"{when}.steps": daemon.status()["step"],
        })  # fmt: skip
        say(f"so far: {json.dumps(found)}")

    found |= _teach(daemon, first, arm, "taught")
    look("taught", first)
    if corrections:
        changed = corrected(first)[:corrections]
        found |= _teach(daemon, changed, arm, "corrected")
        look("corrected", changed)
        look("others", first[corrections:])
    for half in (second[: len(second) // 2], second[len(second) // 2 :]):
        if half:
            found |= _teach(daemon, half, arm, "more")
    if second:
        look("more", second)
        look("first", first[corrections:])
    return found


def _teach(daemon: Daemon, taught: Sequence[Fact], arm: str, when: str) -> dict[str, float]:
    """Teach each fact once, and wait for it. Seconds per fact, and the number that the daemon reports as known."""
    began, said, steps = time.monotonic(), list[dict[str, Any]](), daemon.status()["step"]
    roles = ("user", "assistant")
    lines = [
        json.dumps({"messages": [{"role": role, "content": text} for role, text in zip(roles, one[:2], strict=True)]})
        for one in taught
    ]
    if arm == "file":
        daemon.drop(f"{when}.jsonl", *lines)
    if arm in ("plain", "once"):
        for line in lines:
            daemon.submit(line)
    for number, fact in enumerate(taught if arm not in ("plain", "once", "file") else ()):
        try:
            done = daemon.ctl(
                "teach", "--question", fact.question, "--answer", fact.answer, "--json", check=False, wait_s=LESSON_S
            )
        except DaemonFailed as failed:
            say(f"{when} {number + 1}: {failed}; the arm ends here, and is measured as it is")
            break
        said.append(json.loads(done.stdout))
        one = said[-1]
        say(f"{when} {number + 1}: {one['state']}, {one['steps']} steps, {one['seconds']:.0f} s: {fact.question}")
    if arm in ("plain", "once", "file"):
        daemon.wait(lambda s: s["step"] - steps >= len(taught), "them learned", LESSON_S * len(taught), 1.0)
    seconds = (time.monotonic() - began) / len(taught)
    return {f"{when}.seconds_each": seconds, f"{when}.said_known": sum(one["state"] == "known" for one in said)}


def _goals(figures: dict[str, float], count: int) -> dict[str, Any]:
    """Goals of the shipped arm; those of corrections and more facts if there were any."""
    one = {key.partition(".")[2]: value for key, value in figures.items() if key.startswith("lessons.")}
    goals = {
        "known": report.goal(one["taught.known"] / count, 0.9, at_most=False),
        "general": report.goal(one["taught.general"] / one["general_before"], 0.97, at_most=False),
        "general_same_ones": report.goal(one["taught.kept"] / one["general_before"], 0.97, at_most=False),
        "drift": report.goal(one["taught.drift"], 0.05, at_most=True),
        "told": report.goal(one["taught.told"], one["told_before"], at_most=False),
    }
    if "corrected.old" in one:
        goals["old_answers"] = report.goal(one["corrected.old"], 0, at_most=True)
    if "first.known" in one:
        goals["first_stay"] = report.goal(one["first.known"] / max(1.0, one["others.known"]), 0.9, at_most=False)
    return goals


if __name__ == "__main__":
    sys.exit(main())
