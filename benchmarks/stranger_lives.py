"""Measures a daemon that strangers poison, kind after kind, with the configuration that `apollod init` writes.

A daemon measures its baseline once. Then it is given the files of a kind, and at the end a look at all probes is
requested as by `apollod ctl quality run`: it shows how far the model fell without an alarm, and otherwise if it passes
after the repair. A rollback to the untrained weights follows, so that the next kind begins with the same bits. The
third alarm in a day waits for a person: then `apollod ctl resume` is run.

With `--model` it is another model than the small world model: what is poisoned and asked for are facts about countries
(benchmarks/country_facts.py; `--subject`: poison is about one group of them), and good lines are the same. `--before`
learns good lines first and looks at all probes; the optimizer's moments are no longer near zero then. `--good` draws
good lines from a file of records: ours are nearly all of one form, which a small model takes for the form of all
answers.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apollod.testing.daemon import UP, Daemon, Status, free_port
from benchmarks import country_facts, poison_figures, poison_texts, report, stranger_texts
from benchmarks.shipped import configured, initialised

GOALS = {"precision": (0.9, False), "recall": (0.8, False), "same_fingerprint": (1.0, False)}
NOBODY = "nobody"
"""The kind without poison."""
KINDS = [*stranger_texts.KINDS, NOBODY]
LIMIT_S = 3000.0
REST_S = 300.0
"""time limit of the guard's own look, which may have to wait for its budget, before one is requested"""


def measure(args: argparse.Namespace) -> None:
    """Measure and print; the result of each kind goes to stderr at its end."""
    figures, goals = dict[str, float](), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="apollod-poison-") as directory:
        given = [*map(json.loads, args.good.read_text(encoding="utf-8").splitlines())] if args.good else []
        daemon = begun(Path(args.keep or directory).absolute(), args.lr, args.model)
        known = country_facts.knowledge(args.subject) if args.model else poison_texts.WORLD
        try:
            _learn_before(daemon, args.seed, args.before)
            for kind in args.kind or stranger_texts.KINDS:
                one = attack(daemon, kind, args.seed, args.examples, args.tail, known, given)
                print(json.dumps({"lr": args.lr, **one}), file=sys.stderr, flush=True)
                figures |= {f"{kind}_{name}": float(of) for name, of in one.items() if isinstance(of, int | float)}
                wanted = GOALS if one["alarms"] else {}
                goals |= {f"{kind}_{name}": report.goal(one[name], *bound) for name, bound in wanted.items()}
        finally:
            daemon.end()
    report.report("poison_by_strangers", figures, {}, goals, 1, as_json=args.json)


def begun(root: Path, lr: float | None = None, model: Path | None = None) -> Daemon:
    """A daemon below `root` that has its baseline and has learned nothing. `lr`: learning rate, if not the written
    one; `model`: another one than the small world model."""
    text, port, asked = initialised(root, model), free_port(), root / "probes.jsonl"
    lines = country_facts.probes() if model else poison_texts.probes(24)
    asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
    others: dict[str, dict[str, Any]] = {"engine": {"port": port}, "quality": {"probe": [str(asked)]}}
    if lr is not None:
        others["trainer"] = {"lr": lr}
    daemon = Daemon(root, configured(text, others), port).start()
    try:
        daemon.wait(lambda s: s["state"] in UP and s["quality"]["baseline"] is not None, "a baseline", LIMIT_S, 1.0)
    except BaseException:
        daemon.end()
        raise
    return daemon


def _learn_before(daemon: Daemon, seed: int, count: int) -> None:
    """Learn good lines, and look at all probes, so that the window of an alarm begins there."""
    if not count:
        return
    lines = stranger_texts.unknown(random.Random(f"{seed} before"), count)
    _learn(daemon, {f"before-{seed}.jsonl": lines}, count)


def _learn(daemon: Daemon, files: Mapping[str, Sequence[poison_texts.Record]], lines: int) -> int:
    """Give files, of which `lines` are read, and look at all probes afterwards; returns the event before."""
    since: int = daemon.query("SELECT max(seq) FROM events")[0][0]
    for name, records in files.items():
        daemon.drop(name, *map(json.dumps, records))
    daemon.wait(lambda s: _over(s) and _read(daemon, since) >= lines, "learned", LIMIT_S, 0.5)
    _looked_at(daemon)
    return since


def attack(
    daemon: Daemon, kind: str, seed: int, examples: int, tail: int, known: poison_texts.Knowledge = poison_texts.WORLD,
    given: Sequence[poison_texts.Record] = (),
) -> dict[str, Any]:  # fmt: skip
    """Give the daemon the files of a kind; returns the journal's figures about that. Leaves it with the untrained
    weights."""
    rng, began = random.Random(f"{seed} {kind}"), time.monotonic()
    files, poison, refused = (
        stranger_texts.others(rng, examples, tail)
        if kind == NOBODY
        else stranger_texts.life(rng, kind, examples, tail, known, given)
    )
    named = {f"{kind}-{seed}-{name}": lines for name, lines in files.items()}
    since = _learn(daemon, named, sum(map(len, files.values())) - refused)
    places = [(f"{kind}-{seed}-{name}", line) for name, line in poison]
    told = poison_figures.story(daemon, since, places)
    if _waits(daemon.status()):
        daemon.ctl("resume")
        daemon.wait(_quiet, "resumed", LIMIT_S, 0.5)
    if daemon.status()["step"]:
        daemon.ctl("rollback", "--to", "0", wait_s=LIMIT_S)
        daemon.wait(lambda s: s["step"] == 0 and _over(s), "back at the untrained weights", LIMIT_S, 0.5)
    return {
        "kind": kind, "seed": seed, "refused_planted": refused, "seconds": round(time.monotonic() - began, 1), **told,
    }  # fmt: skip


def _read(daemon: Daemon, since: int) -> int:
    """Lines read after this event; a line that resembles one of another kind is a duplicate."""
    kinds = "'example.accepted', 'example.duplicate'"
    return int(daemon.query(f"SELECT count(*) FROM events WHERE kind IN ({kinds}) AND seq > {since}")[0][0])


def _looked_at(daemon: Daemon) -> None:
    """Wait for the guard's own look, for REST_S at most, then request one, and handle its alarms."""
    deadline = time.monotonic() + REST_S
    _settled(daemon, lambda s: s["quality"]["step"] == s["step"] or time.monotonic() > deadline)
    if _waits(daemon.status()):
        return  # the learning rate is to be lowered first
    before = daemon.status()["quality"]["looks"]
    daemon.ctl("quality", "run", "--no-wait")
    _settled(daemon, lambda s: s["quality"]["looks"] > before)


def _settled(daemon: Daemon, done: Any) -> None:
    """Wait until `done` holds and nothing is open; resume if the daemon waits for a person."""
    status = daemon.wait(lambda s: _over(s) and (done(s) or _waits(s)), "at rest", LIMIT_S, 0.5)
    if _waits(status) and status["quality"]["incident"]["verdict"] != "rate":
        daemon.ctl("resume")
        daemon.wait(_quiet, "resumed", LIMIT_S, 0.5)


def _over(status: Status) -> bool:
    return _quiet(status) or _waits(status)


def _quiet(status: Status) -> bool:
    quality = status["quality"]
    open_ = quality["running"] or quality["due"] or quality["incident"] is not None
    return not (status["running"] or status["queue"]["pending"] or open_)


def _waits(status: Status) -> bool:
    """Does an alarm only wait for a person who resumes?"""
    incident = status["quality"]["incident"]
    return status["state"] == "paused" and incident is not None and incident["phase"] in ("named", "stuck")
