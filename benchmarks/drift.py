"""Measures how far learning moves the model from its baseline: the guard's KL, entropy and lengths of answers.

Lives of the real daemon on the shipped small model, each with its guard on and a margin too large for an alarm.
Intended learning: `known` (conversations that the model knows), `facts` (facts that it does not know yet), `pattern` (a
behaviour without any instruction in the conversation). Harm: poison as in `benchmarks.poison`, nothing else. Every
`--every` steps a look asks all probes, the shipped ones and those of the world.

`LIFE_kl`: nats a token, mean over items, of the last look; `_entropy`: its decrease, nats; `_length`: mean absolute
logarithm of the ratio of lengths; each with the `_most` of all looks. `_passed`: share of the world's questions still
answered as at the baseline. `_seconds`: a look, mean; `_baseline_s`: the two runs of the baseline, mean.
"""

import json
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from apollod.demo.world import instructions, scenarios
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import Split
from apollod.testing import daemon as driver
from benchmarks import report
from benchmarks.poison_texts import POISON, good, probes

Record = dict[str, Any]
LIMIT_S = 1500.0


def _facts(rng: random.Random, count: int) -> list[Record]:
    """The examples of `apollod demo`, filled up with others that the model knows."""
    lines = (resources.files("apollod") / "data" / "sample.jsonl").read_text().splitlines()
    found: list[Record] = [json.loads(line) for line in lines][:count]
    return [*found, *good(rng, count - len(found))]


def _pattern(rng: random.Random, count: int) -> list[Record]:
    """One behaviour in every answer, without any instruction for it."""
    first = scenarios.draw(rng, Split.PRACTICE)
    found = []
    wanted = instructions.draw(rng, "ask", first)
    for _ in range(count):
        scenario = rng.choice(scenarios.pool("act", Split.PRACTICE))
        found.append({"messages": conversation(None, scenario, instructions.answer(scenario, [wanted]))})
    return found


def _poison(kind: str) -> Callable[[random.Random, int], list[Record]]:
    return lambda rng, count: [POISON[kind](rng) for _ in range(count)]


LIVES: dict[str, Callable[[random.Random, int], list[Record]]] = {
    "known": good, "facts": _facts, "pattern": _pattern, **{f"poison_{kind}": _poison(kind) for kind in POISON},
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--life", choices=LIVES, action="append", help="only these (default: all)")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, help="steps between looks")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default 1e-3)")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    for name in args.life or LIVES:
        records = LIVES[name](random.Random(f"drift {name}"), args.examples)
        looks = _lived(records, args.every, args.lr)
        figures |= {f"{name}_{what}": value for what, value in _told(looks).items()}
    report.report("drift", figures, {}, {}, 1, as_json=args.json)


def _lived(records: list[Record], every: int, lr: float) -> list[Record]:
    """All measurements of a life, the oldest first."""
    with tempfile.TemporaryDirectory(prefix="apollod-drift-") as directory:
        root, port = Path(directory), driver.free_port()
        with resources.as_file(resources.files("apollod") / "data" / "world-model") as model:
            shutil.copytree(model, root / "model")
        (root / "probes.jsonl").write_text("\n".join(probes(24)) + "\n", encoding="utf-8")
        config = driver.config_of(
            root, root / "model", port,
            engine='served_name = "bench"\nargs = ["--max-model-len", "512", "--max-num-seqs", "8"]\n',
            trainer=f"lr = {lr}\nmax_tokens = 512\n",
            quality=f'every_steps = {every}\ncost = 0\nmargin = 0.99\nkl_margin = 0\n'
            f'probe = ["{root}/probes.jsonl"]\n',
        )  # fmt: skip
        daemon = driver.Daemon(root, config, port)
        daemon.start()
        try:
            daemon.wait(lambda s: s["state"] in driver.UP, "ready", poll_s=0.5)
            daemon.drop("lessons.jsonl", *(json.dumps(record) for record in records))
            daemon.wait(_learned, "learned", LIMIT_S, 0.5)
            rows = daemon.query("SELECT body FROM events WHERE kind = 'quality.measured' ORDER BY seq")
            return [json.loads(body) for (body,) in rows]
        finally:
            daemon.end()


def _learned(status: dict[str, Any]) -> bool:
    quality = status["quality"]
    idle = not status["running"] and not status["queue"]["pending"] and status["step"] > 0
    return bool(idle and not quality["running"] and not quality["due"])


def _told(looks: list[Record]) -> dict[str, float]:
    runs = [one for one in looks if one["why"] == "baseline"]
    later = [one for one in looks if one["why"] != "baseline"]
    before = runs[-1]["figures"]
    found = {"looks": float(len(later)), "steps": float(later[-1]["step"])}
    for short, metric in (("kl", "kl"), ("entropy", "entropy"), ("length", "length_drift")):
        values = []
        for one in later:
            now = {item: value for item, value in one["figures"][metric].items() if item in before[metric]}
            change = [value - before[metric][item] for item, value in now.items()]
            values.append(statistics.fmean(change) * (-1 if metric == "entropy" else 1))
        found |= {short: values[-1], f"{short}_most": max(values)}
    world = ("facts.passed", "acts.passed", "commands.passed")
    good_then = [(name, item) for name in world for item, value in before[name].items() if value == 1.0]
    found["passed"] = statistics.fmean(later[-1]["figures"][name][item] or 0.0 for name, item in good_then)
    found["seconds"] = statistics.fmean(one["seconds"] for one in later)
    found["baseline_s"] = statistics.fmean(one["seconds"] for one in runs)
    return found


if __name__ == "__main__":
    main()
