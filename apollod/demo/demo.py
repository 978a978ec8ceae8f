"""`apollod demo`: the whole product in a few minutes, with nothing but this machine.

Builds a small model, starts the real daemon on it, asks the served model questions, drops a file into the inbox, waits
until it is learned, asks again. Everything is done as with a user's own model; this module only drives.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apollod.bridges.facts import facts
from apollod.demo.stage import Stage, Table, chat, data, mean_logprob, say, wait
from apollod.errors import ApolloError
from apollod.testing.daemon import UP, Daemon, config_of, free_port

MODEL = "apollo-demo"
LEARNING_RATE = 4e-4  # 40 times the default: a small model must learn a file in one pass; higher rates forget more


def run(args: argparse.Namespace, table: Table) -> int:
    """Run the demo; 0 if the model learned, 1 if not."""
    began = time.monotonic()
    with Stage(args.dir, "apollod-demo-") as stage:
        stage.daemon = daemon = _prepare(stage.root, args)
        _start(daemon)
        result = _learn(daemon, began, say if args.json else print, table)
        if args.serve:
            stage.keep = True
            _linger(daemon)
    print(json.dumps(result))
    return 0 if result["learned"] else 1


def build_model(root: Path, seed: int) -> None:
    """Build the demo's model below `root`, if it is not there. Raises ApolloError."""
    if (root / "model" / "config.json").exists():
        return
    say("1/5 building a small Qwen3.5 model and its tokenizer here (nothing is downloaded)")
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    built = subprocess.run(
        [sys.executable, "-m", "apollod.demo.tiny_model", str(root / "model"), "--seed", str(seed)],
        stdout=sys.stderr, env=env, check=False,
    )  # fmt: skip
    if built.returncode:
        raise ApolloError("the demo's model could not be built", "see the lines above")


def _prepare(root: Path, args: argparse.Namespace) -> Daemon:
    """Create model, inbox and configuration."""
    build_model(root, args.seed)
    port = args.port or free_port()
    config = config_of(
        root, root / "model", port,
        engine=f'served_name = "{MODEL}"\nargs = ["--max-model-len", "1024", "--max-num-seqs", "8"]\n',
        trainer=f"lr = {LEARNING_RATE}\nwarmup_steps = 0\nmax_tokens = 512\nseed = {args.seed}\n",
        checkpoint="keep = 2\n",
    )  # fmt: skip
    return Daemon(root, config, port)


def _start(daemon: Daemon) -> None:
    say("2/5 starting the daemon: vLLM and the trainer, one copy of the weights between them (about 30 s)")
    daemon.start()
    ready = wait(daemon, lambda s: s["state"] in UP, daemon.ready_s, "ready")
    w = ready["weights"]
    packed = f"the engine packs {w['rederive']} of {w['parameters']} tensors, again after each step"
    say(f"    CPU of kind {ready.get('processor') or 'unknown'}: {packed}")


def _learn(daemon: Daemon, began: float, tell: Callable[[str], None], table: Table) -> dict[str, Any]:
    """Ask, teach, ask again; prints the table and returns the result object."""
    before = daemon.status()
    model = daemon.root / "model"
    sample = [json.loads(line) for line in data("sample.jsonl")]
    questions = [json.loads(line) for line in data("questions.jsonl")]
    say(
        f"3/5 asking the served model {len(questions)} questions that the file answers, each phrased as in none of "
        "its lines"
    )
    answers_before = [chat(daemon, MODEL, q["question"]) for q in questions]
    logprob_before = mean_logprob(daemon, MODEL, model, sample)
    say(f"4/5 dropping sample.jsonl ({len(sample)} lines) into {daemon.inbox}")
    daemon.drop("sample.jsonl", *data("sample.jsonl"))
    total = len(sample)
    after = wait(
        daemon,
        lambda s: s["queue"]["accepted"] >= total and not s["queue"]["pending"],
        daemon.learn_s,
        "the file learned",
    )
    say("5/5 asking again: same process, same memory, other answers")
    answers_after = [chat(daemon, MODEL, q["question"]) for q in questions]
    logprob_after = mean_logprob(daemon, MODEL, model, sample)
    rows = [
        (q["question"], b, a, "yes" if _same(a, q["answer"]) else "no")
        for q, b, a in zip(questions, answers_before, answers_after, strict=True)
    ]
    tell(table(["question", "before", "after", "right"], rows))
    right_before = sum(_same(b, q["answer"]) for b, q in zip(answers_before, questions, strict=True))
    right = sum(r[3] == "yes" for r in rows)
    w = after["weights"]
    tell(
        f"\nright answers: {right_before} of {len(rows)} before, {right} after; "
        f"mean log-probability of the file's answers: {logprob_before:.3f} before, {logprob_after:.3f} after\n"
    )
    shared = w["frozen"] == 0 and w["parameters"] == w["live"] + w["cast"] + w["rederive"]
    zero_copy = shared and facts(w["bridge"]).in_place
    changed = any(a != b for a, b in zip(answers_after, answers_before, strict=True))
    learned = logprob_after > logprob_before + 0.5 and right > right_before and changed
    return {
        "schema_version": 1,
        "learned": learned,
        "examples": after["queue"]["trained"],
        "steps": after["step"],
        "engine_pid_before": before["engine"]["pid"],
        "engine_pid_after": after["engine"]["pid"],
        "logprob_before": round(logprob_before, 4),
        "logprob_after": round(logprob_after, 4),
        "zero_copy": zero_copy,
        "parameters": w["parameters"],
        "live": w["live"],
        "cast": w["cast"],
        "rederive": w["rederive"],
        "processor": after.get("processor", ""),
        "elements": w["elements"],
        "right_before": right_before,
        "right_after": right,
        "questions": len(rows),
        "fingerprint": w["fingerprint"],
        "seconds": round(time.monotonic() - began, 1),
    }


def _same(answer: str, expected: str) -> bool:
    return answer.strip().casefold() == expected.strip().casefold()


def _linger(daemon: Daemon) -> None:
    say(f"""
It goes on serving. In another terminal:
  export APOLLOD_CONFIG={daemon.config}
  curl {daemon.url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model":"{MODEL}","messages":[{{"role":"user","content":"Who are you?"}}]}}'
  curl {daemon.url}/train -H 'Content-Type: application/json' \\
    -d '{{"messages":[{{"role":"user","content":"Who are you?"}},{{"role":"assistant","content":"I am apollo."}}]}}'
  apollod ctl status --watch
  apollod ctl query 'SELECT step, loss, fingerprint FROM steps ORDER BY step DESC LIMIT 5'
Ctrl-C here stops it; everything stays in {daemon.root}.""")
    assert daemon.process is not None
    try:
        daemon.process.wait()
    except KeyboardInterrupt:
        say("stopping")
