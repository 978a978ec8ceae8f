"""`apollod demo --rewards`: a small model learns from a score alone, while it is served.

The real daemon serves the model of the plain demo. An environment asks it for a day, a colour or a food and gives 1 to
an answer that names one; nobody shows it such an answer. The mean reward is measured from outside, before and after, on
prompts that address other people, while another user goes on asking. Then the steps are run again from the journal.
With --atropos the same environment is one of Atropos: a process that samples and scores by itself, and posts groups to
the run-api of its package, from which the daemon takes them.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from apollod.adapters.journal import journal_reader
from apollod.demo import naming
from apollod.demo.demo import MODEL, build_model
from apollod.demo.stage import STOP_S, Line, Stage, Table, chat, post, say, wait
from apollod.errors import ApolloError
from apollod.testing.daemon import UP, Daemon, config_of, free_port

PACKAGES = {
    "atroposlib": "atroposlib==0.4.0", "pydantic_cli": "pydantic-cli", "tenacity": "tenacity",
    "jsonlines": "jsonlines", "markdown": "markdown", "wandb": "wandb", "xxhash": "xxhash",
}  # fmt: skip
"""Modules that its environments import beside those that vLLM brings, and their names at the package index"""
START_S, END_S = 60.0, 10.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
NO_KEY = "none"
"""its client of OpenAI's API needs one; the engine needs none of a process of the daemon's user"""


class Atropos:
    """`with Atropos(root) as service:` has the run-api at `service.url`, until the end. Logs are below `root`."""

    def __init__(self, root: Path) -> None:
        """Raises ApolloError where the package cannot be imported."""
        if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
            raise ApolloError(
                f"Atropos cannot be started: there is no {', '.join(missing)}",
                f"{sys.executable} -m pip install --no-deps {' '.join(PACKAGES[name] for name in missing)}",
            )
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._root = root
        self._processes = dict[str, subprocess.Popen[bytes]]()
        self._service = ("atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(port))

    def __enter__(self) -> "Atropos":
        self.start_service()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for name in list(self._processes):
            self.end(name)

    def start_service(self) -> None:
        """Start the run-api, and wait until it answers. Raises ApolloError."""
        self._start("service", *self._service)
        deadline = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/info", timeout=START_S).close()
                return
            except OSError as error:
                self.check()
                if time.monotonic() > deadline:
                    raise ApolloError(
                        f"the run-api of Atropos does not answer: {error}", self._hint("service")
                    ) from error
            time.sleep(0.1)

    def start_environment(self, engine: str, model: Path, name: str, *settings: str) -> None:
        """Start the environment, which samples from the engine at this URL once a trainer has registered. `model`: its
        directory; `name`: by which it is served."""
        self._start(
            "environment", "apollod.demo.naming_atropos", "serve", "--env.rollout_server_url", self.url,
            "--env.tokenizer_name", str(model), "--openai.base_url", f"{engine}/v1", "--openai.api_key", NO_KEY,
            "--openai.model_name", name, "--openai.tokenizer_name", str(model), *settings,
        )  # fmt: skip

    def end(self, name: str) -> None:
        """End one of the processes."""
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Raise ApolloError if one of them has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise ApolloError(f"Atropos's {name} left with {process.returncode}", self._hint(name))

    def _start(self, name: str, *arguments: str, env: Mapping[str, str] = OFFLINE) -> None:
        with open(self._log(name), "ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=log, stderr=log, env={**os.environ, **env}
            )

    def _log(self, name: str) -> Path:
        return self._root / f"atropos-{name}.log"

    def _hint(self, name: str) -> str:
        last = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        return f"its last line is: {''.join(last)[:300]}"


ENVIRONMENT = "naming"
LEARNING_RATE = 1e-3
GROUPS = 120
"""groups after which it is measured again, learned or not"""
LIMIT_S = 900.0
PROMPTS, ANSWERS = 30, 8
"""held-out prompts, and sampled answers to each"""
ANSWER_TOKENS = 24
PART = 10
"""groups in a bar of the curve"""
TIMES = 3.0
REPLAY_S = 600.0
USER_S = 1.0


class Measured(NamedTuple):
    """Mean reward of sampled answers to held-out prompts, and the most likely answer to the first of them."""

    reward: float
    answers: list[str]


def run(args: argparse.Namespace, table: Table) -> int:
    """Run the demo; 0 if the reward rose to three times its start or more and a replay gave the same bits, 1 if not.
    With `args.by_chance` scores are drawn by lot: 0 if the reward did not rise to half as much again."""
    began = time.monotonic()
    with Stage(args.dir, "apollod-rewards-") as stage, ExitStack() as ended:
        build_model(stage.root, args.seed)
        atropos = ended.enter_context(Atropos(stage.root)) if args.atropos else None
        stage.daemon = daemon = Daemon(stage.root, *_configured(stage, args, atropos))
        say("2/5 starting the daemon: vLLM and the trainer, one copy of the weights between them (about 30 s)")
        daemon.start()
        _pause(daemon)
        wait(daemon, lambda s: s["state"] in UP, daemon.ready_s, "ready")
        say(f"3/5 measuring: {PROMPTS} prompts that no group will have, {ANSWERS} sampled answers each")
        before = _measured(daemon)
        say(f"    mean reward {before.reward:.3f}; {naming.prompt(naming.HELD_OUT)!r} -> {before.answers[0]!r}")
        say(f"4/5 {GROUPS} groups of answers are sampled, scored and learned, while a user goes on asking")
        user = User(daemon, MODEL)
        daemon.ctl("environment", "resume", ENVIRONMENT)
        if atropos is not None:
            model = stage.root / "model"
            atropos.start_environment(daemon.url, model, MODEL, "--env.by_chance", str(args.by_chance))
        learned = _learned(daemon, tell := say if args.json else print, atropos)
        served = user.stop()
        after = _measured(daemon)
        daemon.end(STOP_S)
        say("5/5 running every step again from the journal, without engine and environment")
        replayed = _replayed(daemon)
        rows = _answers(before, after)
    tell(table(["prompt that was in no group", "before", "after"], rows))
    times = after.reward / before.reward if before.reward else 0.0
    rose = times >= TIMES if not args.by_chance else times < 1.5
    result = {
        "schema_version": 1, "learned": rose and replayed == learned["fingerprint"], "atropos": args.atropos,
        "by_chance": args.by_chance, "reward_before": round(before.reward, 4), "reward_after": round(after.reward, 4),
        "times": round(times, 2), **learned, "replayed": replayed, "user_answers": served,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    tell(
        f"\nmean reward on prompts that were in no group: {before.reward:.3f} before, {after.reward:.3f} after "
        f"{learned['steps']} steps; {served} other requests were answered meanwhile\n"
    )
    print(json.dumps(result))
    return 0 if result["learned"] else 1


def _configured(stage: Stage, args: argparse.Namespace, atropos: Atropos | None) -> tuple[str, int]:
    port = args.port or free_port()
    config = config_of(
        stage.root, stage.root / "model", port,
        engine=f'served_name = "{MODEL}"\nargs = ["--max-model-len", "1024", "--max-num-seqs", "32"]\n',
        trainer=f"lr = {LEARNING_RATE}\nmax_tokens = 1024\nseed = {args.seed}\n", checkpoint="keep = 2\n",
    )  # fmt: skip
    if atropos is not None:
        keys = f'kind = "atropos"\nurl = "{atropos.url}"\ngroup = {ANSWERS}\n'
    else:
        entry = "apollod.demo.naming" + (":ByChance" if args.by_chance else "")
        keys = f'entry = "{entry}"\nmax_tokens = {ANSWER_TOKENS}\n'
    return f'{config}\n[[environment]]\nname = "{ENVIRONMENT}"\n{keys}', port


def _pause(daemon: Daemon) -> None:
    """Pause the environment before its first group, which waits for engine and trainer."""
    daemon.wait(lambda s: bool(s.get("environments")), "reachable", daemon.ready_s, 0.1)
    daemon.ctl("environment", "pause", ENVIRONMENT, "--reason", "it is measured first")


def _measured(daemon: Daemon) -> Measured:
    rewards, answers = list[float](), list[str]()
    for number in range(naming.HELD_OUT, naming.HELD_OUT + PROMPTS):
        said = _said(daemon, naming.prompt(number), n=ANSWERS, temperature=1.0)
        rewards += [naming.score(number, answer) for answer in said]
        answers += _said(daemon, naming.prompt(number), temperature=0.0)
    return Measured(sum(rewards) / len(rewards), answers)


def _said(daemon: Daemon, prompt: str, **sampling: float) -> list[str]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": ANSWER_TOKENS, **sampling}
    choices = post(daemon, "/v1/chat/completions", body)["choices"]
    return [str(one["message"]["content"] or "").strip() for one in choices]


class User:
    """Another user, who asks every second until stopped."""

    def __init__(self, daemon: Daemon, model: str) -> None:
        self._daemon, self._model, self._stopped, self._answers = daemon, model, threading.Event(), 0
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stopped.wait(USER_S):
            chat(self._daemon, self._model, "What is the inn of Elmford called?")
            self._answers += 1

    def stop(self) -> int:
        """The number of answers that came."""
        self._stopped.set()
        self._thread.join()
        return self._answers


def _learned(daemon: Daemon, tell: Callable[[str], None], atropos: Atropos | None) -> dict[str, Any]:
    """Wait for the groups, with a bar for each PART of them; the figures of the run."""
    line, shown, began = Line(), 0, time.monotonic()
    while True:
        status = daemon.status()
        one = status["environments"][0]
        done = one["learned"] + one["flat"]
        if (parts := min(done, GROUPS) // PART) > shown:
            line.clear()
            for part in range(shown, parts):
                tell(_bar(daemon, part * PART + 1, part * PART + PART))
            shown = parts
        if done >= GROUPS or one["state"] == "paused" or time.monotonic() - began > LIMIT_S:
            break
        line.show(f"    {done} groups, step {status['step']}")
        if atropos is not None:
            atropos.check()
        time.sleep(0.5)
    line.clear()
    if one["state"] == "paused":
        say(f"    paused: {one['reason']}")
    daemon.ctl("environment", "pause", ENVIRONMENT, "--reason", "it is measured", check=False)
    daemon.wait(lambda s: s["running"] is None, "the last step done", 60.0, 0.2)
    status = daemon.status()
    one = status["environments"][0]
    figures = {
        name: None if one[name] is None else round(one[name], 4) for name in ("ratio", "clipped", "kl", "entropy")
    }
    return {
        "steps": status["step"],
        "groups": one["learned"] + one["flat"],
        "flat": one["flat"],
        **figures,
        "fingerprint": status["weights"]["fingerprint"],
        "learning_seconds": round(time.monotonic() - began, 1),
    }


def _bar(daemon: Daemon, first: int, last: int) -> str:
    """A bar for the mean reward of these groups."""
    sql = f"SELECT coalesce(avg(reward), 0.0) FROM groups WHERE number BETWEEN {first} AND {last}"
    reward = float(journal_reader.query(daemon.journal, sql).rows[0][0])
    return f"    groups {first:>3} to {last:>3}  {'#' * round(40 * reward):<40} {reward:.2f}"


def _replayed(daemon: Daemon) -> str:
    """The fingerprint that a replay of all steps gives; empty if it fails."""
    command = daemon.command("replay", "--json")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=REPLAY_S, env=daemon.environment({})
    )
    if done.returncode:
        say(f"    {done.stderr.strip()[-300:]}")
        return ""
    return str(json.loads(done.stdout)["fingerprint"])


def _answers(before: Measured, after: Measured) -> Sequence[tuple[str, str, str]]:
    prompts = [naming.prompt(number) for number in range(naming.HELD_OUT, naming.HELD_OUT + PROMPTS)]
    return list(zip(prompts, before.answers, after.answers, strict=True))[:8]
