"""`apollod demo`: the whole product in a few minutes, with nothing but this machine.

Builds a small model, starts the real daemon on it, asks the served model questions, drops a file into the inbox, waits
until it is learned, asks again. Everything goes the way a user's own model would go; this module only drives.
"""

import argparse
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from apollod.cli import render
from apollod.cli.ctl import ask
from apollod.errors import ApolloError, DaemonUnreachable
from apollod.wire import messages as msg

START_TIMEOUT_S = 600.0
LEARN_TIMEOUT_S = 1800.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.5
ANSWER_TOKENS = 48
MODEL = "apollo-demo"

CONFIG = """\
[state]
dir = "{root}/state"
[model]
path = "{root}/model"
[engine]
port = {port}
served_name = "{model}"
args = ["--max-model-len", "1024", "--max-num-seqs", "8"]
[trainer]
lr = {lr}
max_tokens = 512
seed = {seed}
[inbox]
path = "{root}/inbox"
rescan_s = 1.0
[checkpoint]
keep = 2
"""
LEARNING_RATE = 4e-4  # 40 times the default: a small model has to learn a file in one pass; above it forgets more


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 if the model learned, 1 if not."""
    began = time.monotonic()
    root = Path(args.dir).expanduser().absolute() if args.dir else Path(tempfile.mkdtemp(prefix="apollod-demo-"))
    daemon: subprocess.Popen[bytes] | None = None
    keep = bool(args.dir)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        config = _prepare(root, args)
        daemon = _start(root, config)
        result = _learn(root, daemon, began, say if args.json else print)
        if args.serve:
            keep = True
            _linger(root, config, daemon)
        _stop(daemon)
        print(json.dumps(result))
        return 0 if result["learned"] else 1
    except BaseException:
        if daemon is not None:
            _stop(daemon)
        if (root / "daemon.log").exists():
            say(f"apollod: the logs are in {root}/daemon.log and {root}/state/log")
            keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


def say(text: str) -> None:
    """Progress, on stderr: stdout is for the table and the JSON line; with --json for that alone."""
    print(text, file=sys.stderr, flush=True)


def _prepare(root: Path, args: argparse.Namespace) -> Path:
    """Model, inbox, configuration."""
    if (root / "state" / "journal.db").exists():
        raise ApolloError(f"{root} holds an earlier demo", "remove it, or choose another --dir")
    (root / "inbox").mkdir(parents=True, exist_ok=True)
    if not (root / "model" / "config.json").exists():
        say("1/5 building a small Qwen3.5 model and its tokenizer here (nothing is downloaded)")
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        built = subprocess.run(
            [sys.executable, "-m", "apollod.trainer.tiny", str(root / "model"), "--kind", "demo", "--seed", str(args.seed)],
            stdout=sys.stderr, env=env, check=False,
        )
        if built.returncode:
            raise ApolloError("the demo's model could not be built", "see the lines above")
    config = root / "apollod.toml"
    config.write_text(
        CONFIG.format(root=root, port=args.port or _free_port(), model=MODEL, lr=LEARNING_RATE, seed=args.seed), encoding="utf-8"
    )
    return config


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _start(root: Path, config: Path) -> "subprocess.Popen[bytes]":
    say("2/5 starting the daemon: vLLM and the trainer, one copy of the weights between them (about 30 s)")
    # Nothing of the surroundings shall change the demo: not a service's runtime directory, not somebody's overrides.
    env = {k: v for k, v in os.environ.items() if k != "RUNTIME_DIRECTORY" and not (k.startswith("APOLLOD_") and "__" in k)}
    with open(root / "daemon.log", "ab") as out:
        command = [sys.executable, "-m", "apollod", "run", "--config", str(config)]
        daemon = subprocess.Popen(command, stdout=out, stderr=out, env=env)
    try:
        _wait(root, daemon, lambda s: s["state"] in ("serving", "training", "paused"), START_TIMEOUT_S, "to be ready")
    except BaseException:
        _stop(daemon)
        raise
    return daemon


def _status(root: Path) -> dict[str, Any]:
    return ask(str(root / "state" / "run" / "apollod.sock"), msg.StatusRequest())


def _wait(root: Path, daemon: "subprocess.Popen[bytes]", done: Any, timeout_s: float, what: str) -> dict[str, Any]:
    """Poll status until `done`; progress while it lasts."""
    deadline = time.monotonic() + timeout_s
    status: dict[str, Any] = {}
    last = ""
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            tail = (root / "daemon.log").read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
            raise ApolloError(f"the daemon ended with exit code {daemon.returncode}: {' '.join(tail)}", f"see {root}/daemon.log")
        try:
            status = _status(root)
        except DaemonUnreachable:
            status = {}
        if status and done(status):
            if sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            return status
        if status.get("state") == "degraded":
            raise ApolloError(f"the daemon is degraded: {status['error']}", f"see {root}/daemon.log and {root}/state/log")
        last = _progress(status, last)
        time.sleep(POLL_S)
    raise ApolloError(f"the daemon took more than {timeout_s:.0f} s {what}", f"see {root}/daemon.log and {root}/state/log")


def _progress(status: dict[str, Any], last: str) -> str:
    if not status:
        return last
    q = status["queue"]
    text = f"    {status['state']}: step {status['step']}" + (f", {q['pending']} pending" if q["accepted"] else "")
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text != last:
        say(text)
    return text


def _learn(root: Path, daemon: "subprocess.Popen[bytes]", began: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Ask, teach, ask again; tells the table and returns the result object."""
    before = _status(root)
    url = before["engine"]["url"]
    sample = [json.loads(line) for line in _data("sample.jsonl")]
    questions = [json.loads(line) for line in _data("questions.jsonl")]
    say(f"3/5 asking the served model {len(questions)} questions that the file answers, each phrased as in none of its lines")
    answers_before = [_chat(url, q["question"]) for q in questions]
    logprob_before = _mean_logprob(url, root / "model", sample)
    say(f"4/5 dropping sample.jsonl ({len(sample)} lines) into {root}/inbox")
    _drop("sample.jsonl", root / "inbox")
    total = len(sample)
    after = _wait(root, daemon, lambda s: s["queue"]["accepted"] >= total and not s["queue"]["pending"], LEARN_TIMEOUT_S, "to learn")
    say("5/5 asking again: same process, same memory, other answers")
    answers_after = [_chat(url, q["question"]) for q in questions]
    logprob_after = _mean_logprob(url, root / "model", sample)
    rows = [
        (q["question"], b, a, "yes" if _same(a, q["answer"]) else "no")
        for q, b, a in zip(questions, answers_before, answers_after, strict=True)
    ]
    tell(render.table(["question", "before", "after", "right"], rows))
    right_before = sum(_same(b, q["answer"]) for b, q in zip(answers_before, questions, strict=True))
    right = sum(r[3] == "yes" for r in rows)
    w = after["weights"]
    tell(
        f"\nright answers: {right_before} of {len(rows)} before, {right} after; "
        f"mean log-probability of the file's answers: {logprob_before:.3f} before, {logprob_after:.3f} after\n"
    )
    zero_copy = w["bridge"] in ("memfd", "cuda-ipc") and w["frozen"] == 0 and w["parameters"] == w["live"] + w["cast"] + w["rederive"]
    changed = any(a != b for a, b in zip(answers_after, answers_before, strict=True))
    learned = logprob_after > logprob_before + 0.5 and right > right_before and changed
    return {
        "schema_version": 1, "learned": learned, "examples": after["queue"]["trained"], "steps": after["step"],
        "engine_pid_before": before["engine"]["pid"], "engine_pid_after": after["engine"]["pid"],
        "logprob_before": round(logprob_before, 4), "logprob_after": round(logprob_after, 4), "zero_copy": zero_copy,
        "parameters": w["parameters"], "live": w["live"], "cast": w["cast"], "rederive": w["rederive"],
        "elements": w["elements"], "right_before": right_before, "right_after": right, "questions": len(rows),
        "fingerprint": w["fingerprint"], "seconds": round(time.monotonic() - began, 1),
    }


def _data(name: str) -> list[str]:
    return (resources.files("apollod") / "data" / name).read_text(encoding="utf-8").splitlines()


def _drop(name: str, inbox: Path) -> None:
    """As a well-behaved writer does it: write beside, rename in."""
    part = inbox / f".{name}.part"
    part.write_text("\n".join(_data(name)) + "\n", encoding="utf-8")
    part.rename(inbox / name)


def _same(answer: str, expected: str) -> bool:
    return answer.strip().casefold() == expected.strip().casefold()


def _post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return dict(json.load(response))
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise ApolloError(f"POST {path} failed: {error}", "see the engine's log") from error


def _chat(url: str, question: str) -> str:
    answer = _post(url, "/v1/chat/completions", {
        "model": MODEL, "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": ANSWER_TOKENS,
    })
    return str(answer["choices"][0]["message"]["content"]).strip()


def _mean_logprob(url: str, model: Path, sample: list[dict[str, Any]]) -> float:
    """Mean log-probability a token that the served model gives to the file's answers (natural logarithm).

    Asked of the engine with `prompt_logprobs`, which never reads the prefix cache. Tokens of the answer are those that
    the conversation has beyond its prompt, up to the end of the turn: what is learned, no more.
    """
    end = json.loads((model / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    total = count = 0.0
    for record in sample:
        messages = record["messages"]
        prompt = _post(url, "/tokenize", {"model": MODEL, "messages": messages[:-1], "add_generation_prompt": True})["tokens"]
        full = _post(url, "/tokenize", {"model": MODEL, "messages": messages, "add_generation_prompt": False})["tokens"]
        full = full[: len(full) - full[::-1].index(end)]
        scored = _post(url, "/v1/completions", {"model": MODEL, "prompt": full, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0})
        for token, choices in zip(full[len(prompt):], scored["choices"][0]["prompt_logprobs"][len(prompt):], strict=True):
            value = choices[str(token)]["logprob"]
            total += value if math.isfinite(value) else -100.0
            count += 1
    return total / count


def _terminated(number: int, frame: object) -> None:
    raise SystemExit(128 + number)  # so that the daemon is stopped too


def _linger(root: Path, config: Path, daemon: "subprocess.Popen[bytes]") -> None:
    url = _status(root)["engine"]["url"]
    say(f"""
It goes on serving. In another terminal:
  export APOLLOD_CONFIG={config}
  curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model":"{MODEL}","messages":[{{"role":"user","content":"Who are you?"}}]}}'
  curl {url}/train -H 'Content-Type: application/json' \\
    -d '{{"messages":[{{"role":"user","content":"Who are you?"}},{{"role":"assistant","content":"I am apollo."}}]}}'
  apollod ctl status --watch
  apollod ctl query 'SELECT step, loss, fingerprint FROM steps ORDER BY step DESC LIMIT 5'
Ctrl-C here stops it; everything stays in {root}.""")
    try:
        daemon.wait()
    except KeyboardInterrupt:
        say("stopping")


def _stop(daemon: "subprocess.Popen[bytes]") -> None:
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
