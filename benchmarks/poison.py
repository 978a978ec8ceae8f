"""Measures if the quality guard notices poison, undoes it, names the examples, and ends at the unpoisoned weights.

For each kind (wrong facts, degenerate repetition, a contradiction of what the probes ask for) the real daemon serves
the small local model that ships with apollod, and learns two files from its inbox: one of good examples, and one in
which one in twenty is poison. Its probes are questions that the model answers and that no example holds, besides those
that ship. Then the journal is read: was there an alarm, which examples were named, how many replays did that take, and
is the served fingerprint equal to that of `apollod replay --without` the named examples.

An example takes its full effect only with later ones (the moments of APOLLO outlast a step), so that good ones follow
in the same window (`--tail`); with `--tail 0` the last poisonous ones have had no effect yet when they are looked for.

precision: the planted share of the named examples; recall: the share of the planted ones that was named. `--harmless N`
learns N good examples instead, with the same probes, and counts alarms. `--ranked` gives no replay the time to end,
which stands for a machine without memory for one: the trainer ranks the examples, and those that stand first count as
named.

`--strangers` does the same with poison as strangers would write it, with the configuration that `apollod init` writes
and good examples that are new to the model, so that they change weights, too: `--tail` of them, `--examples` of which
one in twenty is poison, and `--tail` (benchmarks/stranger_lives.py). `--model DIR` does it with that model.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

from apollod.testing import daemon as driver
from benchmarks import country_facts, report, stranger_lives, stranger_texts
from benchmarks.poison_figures import without
from benchmarks.poison_texts import POISON, good, mixed, probes

ONE_IN = 20
NEW = 16
"""lines of the first file that the model does not know: the other good ones write nothing, and without these the
learning rate would still rise when the poison comes"""
LIMIT_S = 3000.0
NO_TIME_S = 0.01
"""time limit of a replay, too short for any: replays take seconds"""
GOALS = {"precision": (0.9, False), "recall": (0.9, False), "same_fingerprint": (1.0, False)}


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--kind", choices=stranger_lives.KINDS, action="append", help="only these (default all)")
    parser.add_argument("--strangers", action="store_true", help="poison by strangers, at the settings that ship")
    parser.add_argument("--model", type=Path, metavar="DIR", help="with --strangers: another model than the small one")
    parser.add_argument("--subject", choices=country_facts.GROUPS, default="", help="with --model: of the poison")
    parser.add_argument("--good", type=Path, metavar="FILE", help="with --strangers: records to draw good lines from")
    parser.add_argument("--before", type=int, default=0, metavar="N", help="with --strangers: N good lines before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=60, help="of each of the two files (default 60)")
    parser.add_argument(
        "--tail", type=int, default=30, help="good examples in the second file behind those that are mixed (default 30)"
    )
    parser.add_argument("--lr", type=float, help="learning rate (default 2e-3; with --strangers what is written)")
    parser.add_argument("--harmless", type=int, default=0, metavar="N", help="N good examples, no poison")
    parser.add_argument("--every", type=int, default=50, help="[quality] every_steps with --harmless (default 50)")
    parser.add_argument("--cost", type=float, default=0.0, help="[quality] cost (default 0: all probes are asked)")
    parser.add_argument("--ranked", action="store_true", help="no replay can be run")
    parser.add_argument("--keep", metavar="DIR", help="leave journals and logs there")
    args = parser.parse_args()
    if args.strangers:
        stranger_lives.measure(args)
        return
    if others := [kind for kind in args.kind or () if kind not in POISON]:
        parser.error(f"--kind {others[0]} is poison by strangers: add --strangers")
    args.lr = args.lr or 2e-3
    if args.harmless:
        _report_harmless(args)
        return
    found = {kind: _poisoned(args, kind) for kind in args.kind or sorted(POISON)}
    figures: dict[str, float] = {}
    goals: dict[str, Any] = {}
    for kind, one in found.items():
        figures |= {f"{kind}_{name}": float(value) for name, value in one.items() if isinstance(value, int | float)}
        for name, (bound, at_most) in GOALS.items():
            goals[f"{kind}_{name}"] = report.goal(float(one[name]), bound, at_most)
        print(f"{kind}: {json.dumps(one)}", file=sys.stderr)
    report.report("poison", figures, {}, goals, 1, as_json=args.json)


# --- one life ---------------------------------------------------------------------------------------------------------


def _poisoned(args: argparse.Namespace, kind: str) -> dict[str, Any]:
    rng = random.Random(f"{args.seed} {kind}")
    new = stranger_texts.unknown(random.Random(f"{args.seed} new"), NEW)
    first = new + good(rng, args.examples)
    second, places = mixed(rng, kind, args.examples, ONE_IN)
    second += good(rng, args.tail)
    replay_s = NO_TIME_S if args.ranked else 0.0
    with Life(args.lr, 1000, Path(args.keep, kind) if args.keep else None, replay_s=replay_s) as life:
        life.learn("good.jsonl", first)
        life.learn("mixed.jsonl", second)
        return life.verdict("mixed.jsonl", [place + 1 for place in places])


def _report_harmless(args: argparse.Namespace) -> None:
    rng = random.Random(f"{args.seed} harmless")
    keep = Path(args.keep, "harmless") if args.keep else None
    with Life(args.lr, args.every, keep, args.cost, loss_min=0.0) as life:  # else known examples would write nothing
        life.learn("good.jsonl", good(rng, args.harmless, distinct=True))
        looks = life.rows("SELECT count(*) FROM events WHERE kind = 'quality.measured'")[0][0]
        alarms = life.rows("SELECT count(*) FROM events WHERE kind = 'quality.alarmed'")[0][0]
        steps = life.daemon.status()["step"]
        asked = "SELECT sum(body ->> '$.seconds') FROM events WHERE kind = 'quality.measured' AND body ->> '$.why' <> "
        looks_s = life.rows(asked + "'baseline'")[0][0] or 0.0
        steps_s = life.rows("SELECT sum(body ->> '$.seconds') FROM events WHERE kind = 'step.completed'")[0][0]
    figures = {"steps": steps, "looks": looks, "alarms": alarms, "looks_s": looks_s, "steps_s": steps_s}
    report.report(
        "poison",
        figures,
        {"looks_to_steps": looks_s / steps_s},
        {"alarms": report.goal(alarms, 0.0, True)},
        1,
        as_json=args.json,
    )


class Life:
    """A daemon on a copy of the small model, with the guard on."""

    def __init__(
        self, lr: float, every_steps: int, keep: Path | None = None, cost: float = 0.0, loss_min: float | None = None,
        replay_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.root = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="apollod-poison-"))
        self._keep = keep is not None
        self.root.mkdir(parents=True, exist_ok=True)
        with resources.as_file(resources.files("apollod") / "data" / "world-model") as model:
            shutil.copytree(model, self.root / "model", dirs_exist_ok=True)
        (self.root / "probes.jsonl").write_text("\n".join(probes(24)) + "\n", encoding="utf-8")
        port = driver.free_port()
        config = driver.config_of(
            self.root, self.root / "model", port,
            engine='served_name = "bench"\nargs = ["--max-model-len", "512", "--max-num-seqs", "8"]\n',
            trainer=f"lr = {lr}\nmax_tokens = 512\n" + (f"loss_min = {loss_min}\n" if loss_min is not None else ""),
            quality=f'every_steps = {every_steps}\ncost = {cost}\nprobe = ["{self.root}/probes.jsonl"]\n'
            f"replay_s = {replay_s}\n",
        )  # fmt: skip
        self.daemon = driver.Daemon(self.root, config, port)

    def __enter__(self) -> "Life":
        return self.start()

    def start(self) -> "Life":
        """Start the daemon and wait until it is ready."""
        self.daemon.start()
        self.daemon.wait(lambda s: s["state"] in driver.UP, "ready", poll_s=0.5)
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.end()
        if not self._keep:
            shutil.rmtree(self.root, ignore_errors=True)

    def rows(self, sql: str) -> list[Any]:
        return list(self.daemon.query(sql))

    def learn(self, name: str, records: list[dict[str, Any]]) -> None:
        """Drop a file; wait until it is learned and no quality check is open."""
        before = self.daemon.status()["queue"]["accepted"]
        self.daemon.drop(name, *(json.dumps(record) for record in records))
        self.wait(name, before + 1)

    def wait(self, name: str, accepted: int) -> None:
        """Wait until `accepted` examples are accepted, all are learned, and no quality check is open."""

        def done(status: dict[str, Any]) -> bool:
            quality = status["quality"]
            idle = not status["running"] and not status["queue"]["pending"]
            quiet = not quality["running"] and not quality["due"] and quality["incident"] is None
            return bool(status["queue"]["accepted"] >= accepted and idle and quiet)

        began = time.monotonic()
        self.daemon.wait(done, f"{name} learned", LIMIT_S, 0.5)
        print(f"    {name}: {time.monotonic() - began:.1f} s", file=sys.stderr)

    def verdict(self, name: str, lines: list[int]) -> dict[str, Any]:
        """The journal's account of the first alarm, against the planted lines."""
        alarms = self._bodies("quality.alarmed")
        if not alarms:
            return {"alarms": 0, "precision": 0.0, "recall": 0.0, "same_fingerprint": 0.0}
        named = self._bodies("quality.named")[0]
        blamed = {*named["culprits"], *named["suspects"]}
        planted = {
            str(id_)
            for (id_,) in self.rows(
                "SELECT examples.id FROM examples JOIN sources ON sources.source = examples.source "
                f"WHERE sources.path LIKE '%{name}' AND examples.line IN ({', '.join(map(str, lines))})"
            )
        }
        replays = self._bodies("quality.replayed")
        alarm = alarms[0]
        status = self.daemon.status()
        served = status["weights"]["fingerprint"]
        self.daemon.end()
        return {
            "alarms": len(alarms), "metrics": alarm["metrics"], "verdict": named["verdict"], "planted": len(planted),
            "blamed": len(blamed), "precision": len(blamed & planted) / max(1, len(blamed)),
            "recall": len(blamed & planted) / max(1, len(planted)), "replays": len(replays),
            "replay_s": sum(one["seconds"] for one in replays), **self._ranked(planted),
            "same_fingerprint": float(without(self.daemon, alarm["step"], sorted(blamed)) == served),
        }  # fmt: skip

    def _ranked(self, planted: set[str]) -> dict[str, Any]:
        """The places of the planted examples in the first ranking (from 1), and its duration."""
        ranked = self._bodies("quality.ranked")
        if not ranked:
            return {}
        scores = ranked[0]["scores"]
        order = sorted(scores, key=lambda one: -scores[one])
        return {
            "ranked": len(scores), "places": [place for place, one in enumerate(order, 1) if one in planted],
            "scores": [round(scores[one], 4) for one in order[:12]], "rank_s": ranked[0]["seconds"],
        }  # fmt: skip

    def _bodies(self, kind: str) -> list[dict[str, Any]]:
        return [
            json.loads(body) for (body,) in self.rows(f"SELECT body FROM events WHERE kind = '{kind}' ORDER BY seq")
        ]


if __name__ == "__main__":
    main()
