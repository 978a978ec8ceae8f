"""Measures rollouts and training together: hogwild (the default) against a fence, and against a loop that copies the
weights; and what objectives cost beside plain learning.

End to end: two daemons, one of them with `publish = "fenced"`, and the loop of benchmarks/grpo_copies.py, with one
thread and with all of them, the faster of which counts. All of them stay up and rest while another one is measured, in
the order A B C D D C B A, so that drift of the machine cancels. The same prompts, groups of 8 answers, scores by lot,
so that no group is without anything to learn; up to AHEAD groups wait, and the other loop copies the weights once for
so many. Nothing is held ([lessons] hold = 0), since that loop holds nothing. Two arms more, of hogwild: with the
default `ahead`, and with the scores of the task. Tokens a second are those of sampling and of training together;
training also reads the prompts. The trainer is idle while no step runs, the engine while it answers no request of a
group, or lets it wait. CPU seconds are those of all processes of an arm, for a learned group.

Objectives: see benchmarks/grpo_objectives.py. On the demo's model and on SmolLM2-135M-Instruct, each as copies.
"""

import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apollod.demo import real_model
from apollod.testing import daemon as driver
from apollod.wire import messages as msg
from benchmarks import grpo_objectives, grpo_task, report
from benchmarks.daemon import build_model
from benchmarks.grpo_copies import Copies
from benchmarks.grpo_spans import Measured, Span, cpu_seconds

MODELS = ("demo", "real")
STEP_ROUNDS = {"demo": 15, "real": 5}
FASTER_THAN_COPIES, TRAINER_IDLE = 1.5, 0.15
SETTLE_GROUPS = 3
"""groups learned, or found to teach nothing, after a rest and before a window begins"""
AHEAD = 4
LOTTERY, TASK = str(Path(grpo_task.__file__)), "apollod.demo.naming"
ENVIRONMENTS = {"lot": (LOTTERY, AHEAD), "near": (LOTTERY, 0), "task": (TASK, AHEAD)}
"""by name: entry, `ahead` (0: the default)"""
ARMS = {
    "hogwild": ("hogwild", "lot"),
    "fenced": ("fenced", "lot"),
    "near": ("hogwild", "near"),
    "task": ("hogwild", "task"),
}
"""daemon and environment of each arm but those of copies"""
ONCE = ("near", "task")
"""arms that no ratio is made of: one window"""
SQL = """
SELECT kind, at_ns, coalesce(body ->> '$.tokens', 0), coalesce(body ->> '$.seconds', 0.0),
       coalesce(body ->> '$.sampling_s', 0.0), coalesce(body ->> '$.scoring_s', 0.0),
       coalesce(body ->> '$.example', '') = '', coalesce(body ->> '$.applied', 1)
FROM events WHERE kind IN ('group.sampled', 'step.completed', 'engine.paused', 'engine.resumed') ORDER BY seq
"""


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=15.0, help="least length of a window (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="windows of each arm (%(default)s)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--parts", nargs="+", choices=("loops", "objectives"), default=["loops", "objectives"])
    parser.add_argument("--demo-model", type=Path, help="built already (python -m apollod.demo.tiny_model)")
    args = parser.parse_args()
    figures, ratios, goals = {"load_before": os.getloadavg()[0]}, dict[str, float](), dict[str, Any]()
    table = list[str]()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        for name in args.models:
            root = Path(directory) / name
            root.mkdir()
            model = _model(name, root, args.demo_model)
            if "loops" in args.parts:
                arms = _loops(root, model, args.seconds, args.rounds)
                _judge(name, arms, figures, ratios, goals)
                table += [_row(f"{name} {arm}", measured) for arm, measured in arms.items()]
            if "objectives" in args.parts:
                grpo_objectives.measure(model, name, STEP_ROUNDS[name], figures, ratios, goals)
    figures["load_after"] = os.getloadavg()[0]
    table += [f"{name:<28} {value:.3f}" for name, value in ratios.items()]
    print("\n".join(table), file=sys.stderr, flush=True)
    report.report("grpo", figures, ratios, goals, threads=len(os.sched_getaffinity(0)), as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _model(name: str, root: Path, built: Path | None) -> Path:
    if name == "demo" and built is None:
        return build_model(root / "model", "demo")
    made = built if name == "demo" and built else real_model.default_path()
    if name == "real":
        real_model.ensure(made)
    return Path(shutil.copytree(made, root / "model"))


# --- end to end -------------------------------------------------------------------------------------------------------


def _loops(root: Path, model: Path, seconds: float, rounds: int) -> dict[str, Measured]:
    """All arms, in turns."""
    daemons = {publish: _Daemon(root / publish, model, publish) for publish in ("hogwild", "fenced")}
    copies = None
    try:
        for daemon in daemons.values():
            daemon.begin()
        copies = Copies(model, root / "copies.log")
        threads = {f"copies_{count}": count for count in sorted({1, len(os.sched_getaffinity(0))})}
        order = [*(arm for arm in ARMS if arm not in ONCE), *threads]
        arms = {arm: Measured() for arm in [*order, *ONCE]}
        for arm in [*(one for turn in range(rounds) for one in (order if turn % 2 == 0 else order[::-1])), *ONCE]:
            if arm in threads:
                copies.measure(seconds, AHEAD, threads[arm], arms[arm])
            else:
                publish, environment = ARMS[arm]
                daemons[publish].window(environment, seconds, arms[arm])
            _say(_row(arm, arms[arm]))
        return arms
    finally:
        for daemon in daemons.values():
            daemon.end()
        if copies is not None:
            copies.end()


def _judge(
    name: str, arms: Mapping[str, Measured], figures: dict[str, float], ratios: dict[str, float], goals: dict[str, Any]
) -> None:
    for arm, measured in arms.items():
        figures |= measured.figures(f"{name}_{arm}")
    copies = max(measured.rate for arm, measured in arms.items() if arm.startswith("copies"))
    ratios[f"{name}_hogwild_to_fenced"] = arms["hogwild"].rate / arms["fenced"].rate
    ratios[f"{name}_hogwild_to_copies"] = arms["hogwild"].rate / copies
    goals[f"{name}_hogwild_to_copies"] = report.goal(arms["hogwild"].rate / copies, FASTER_THAN_COPIES, False)
    idle = 1 - arms["hogwild"].training / arms["hogwild"].seconds
    goals[f"{name}_trainer_idle"] = report.goal(idle, TRAINER_IDLE, True)


class _Daemon(driver.Daemon):
    """A daemon that rests until a window of it is measured."""

    def __init__(self, root: Path, model: Path, publish: str) -> None:
        root.mkdir()
        port, own = driver.free_port(), shutil.copytree(model, root / "model")
        config = driver.config_of(
            root, own, port,
            engine='served_name = "bench"\nargs = ["--max-model-len", "1024", "--max-num-seqs", "32"]\n',
            trainer=f'lr = 1e-6\nmax_tokens = 1024\npublish = "{publish}"\nalign_every = 0\n', lessons="hold = 0.0\n",
            checkpoint="delay_s = 3600\n", log='level = "warning"\n',
        )  # fmt: skip
        for name, (entry, ahead) in ENVIRONMENTS.items():
            config += f'\n[[environment]]\nname = "{name}"\nentry = "{entry}"\ngroup = {grpo_task.GROUP}\n'
            config += f"max_tokens = {grpo_task.ANSWER_TOKENS}\nrails = 0\n" + (f"ahead = {ahead}\n" if ahead else "")
        super().__init__(root, config, port)

    def begin(self) -> None:
        """Start it, learn some groups to warm up, and let it rest."""
        self.start()
        self.wait_ready()
        for name in ("near", "task"):
            self.ctl("environment", "pause", name)
        self.wait(lambda s: s["step"] >= 3, "three steps learned")
        self._rest()

    def window(self, environment: str, seconds: float, into: Measured) -> None:
        """Measure so many seconds with this environment alone."""
        for name in ENVIRONMENTS:
            self.ctl("environment", "resume" if name == environment else "pause", name)
        before = self._groups(environment, self.status())
        self.request(msg.ResumeRequest())
        self.wait(lambda s: self._groups(environment, s) >= before + SETTLE_GROUPS, "groups came")
        assert self.process is not None
        begin, cpu = time.time(), cpu_seconds(self.process.pid)
        time.sleep(seconds)
        window, cpu = Span(begin, time.time()), cpu_seconds(self.process.pid) - cpu
        self._rest()
        said = Happened(self.query(SQL))
        flat = sum(window.begin <= at <= window.end for at in said.flat)
        into.add(window, said.sampling, said.steps, (), said.paused, flat, cpu)

    def _groups(self, environment: str, status: driver.Status) -> int:
        one = next(one for one in status["environments"] if one["name"] == environment)
        return int(one["learned"] + one["flat"])

    def _rest(self) -> None:
        """Pause it, and wait until neither trainer nor engine works."""
        self.request(msg.PauseRequest())
        self.wait(lambda s: s["running"] is None and not self._answering(), "at rest")

    def _answering(self) -> bool:
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return any(line.startswith("vllm:num_requests_running") and not line.endswith(" 0.0") for line in lines)


class Happened:
    """Spans of a daemon's life, from its events (`SQL`). `flat`: when groups without anything to learn came."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self.sampling, self.steps, self.paused, self.flat = list[Span](), list[Span](), list[Span](), list[float]()
        since = 0.0
        for kind, at_ns, tokens, seconds, sampling_s, scoring_s, flat, applied in rows:
            at = at_ns / 1e9
            if kind == "group.sampled":
                self.sampling.append(Span(at - scoring_s - sampling_s, at - scoring_s, tokens))
                self.flat += [at] if flat else []
            elif kind == "step.completed" and applied:
                self.steps.append(Span(at - seconds, at, tokens))
            elif kind == "engine.paused":
                since = at
            elif kind == "engine.resumed":
                self.paused.append(Span(since, at))


# --- for people -------------------------------------------------------------------------------------------------------


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _row(name: str, one: Measured) -> str:
    shown = one.figures("")
    return (
        f"{name:<18} {shown['_tokens_per_s']:7.0f} tokens/s ({shown['_sampled_per_s']:.0f} sampled, "
        f"{shown['_trained_per_s']:.0f} trained), idle: engine {shown['_engine_idle']:.0%}, trainer "
        f"{shown['_trainer_idle']:.0%}, copying {shown['_copying']:.0%}, {one.flat} flat, "
        f"{shown['_cpu_s_per_group']:.2f} CPU s a group"
    )


if __name__ == "__main__":
    sys.exit(main())
