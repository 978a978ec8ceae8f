"""Shows what ratings do: sixty of them by `POST /feedback` on a running daemon, learned by DPO or KTO.

The task is that of `apollod demo --rewards`: an answer that names what was asked for is the better one. Ratings are of
the model's own sampled answers. For `dpo` a bad answer is corrected with a good one to the same prompt, for `kto` half
of the rated answers are good. The margin, log p(better) - log p(worse), is measured before and after by the engine on
pairs of answers to prompts in which other people are addressed, sampled before anything was learned; the probes of the
quality guard are asked before and after; another user asks all the time. `--by-chance` turns every second rating
around, which must not move the margin.

With `--rows FILE --model DIR` a data set of other people is learned by a daemon at its defaults instead: a JSON array
of rows as of TRL or LLaMA-Factory, `messages` with `label`, or `conversations` with `chosen` and `rejected`. Of those
with at most `--characters` the first ones are dropped into the inbox, or given with `--direct`, at ten times the rate;
the last ones are measured before and after: by how much the log-probability of a token of good answers rises more than
that of bad ones.
"""

import itertools
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from apollod.demo import naming
from apollod.demo.rewards import User
from apollod.demo.stage import mean_logprob, post
from apollod.testing.daemon import Daemon, config_of, free_port
from benchmarks import report
from benchmarks.daemon import build_model

RATINGS = 60
PAIRS = 30
"""held-out ones"""
SAMPLED = 16
"""answers to a prompt, of which one that is good and one that is bad are taken"""
MODEL = "bench"
LIMIT_S = 600.0
ROWS_LIMIT_S = 3600.0
"""for each of baseline, learning and last evaluation of a real model on two cores"""


class Pair(NamedTuple):
    """A prompt with a good and a bad answer: (id of the response, number of the choice, text)."""

    prompt: str
    good: tuple[str, int, str]
    bad: tuple[str, int, str]


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--objective", choices=["dpo", "kto"], action="append", help="default: both")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--ratings-per-step", type=int, default=8, help="of kto, default: 8")
    parser.add_argument("--by-chance", action="store_true")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--characters", type=int, default=1500)
    parser.add_argument("--direct", action="store_true", help="give the rows as `apollod ctl submit` does")
    args = parser.parse_args()
    figures = dict[str, float]()
    goals = dict[str, Any]()
    if args.rows:
        with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
            figures = _of_rows(Path(directory), args.rows, args.model, args.characters, args.direct)
        goals["margin_rises"] = report.goal(figures["risen"], 2 * figures["error"], at_most=False)
        goals["alarms"] = report.goal(figures["alarms"], 0, at_most=True)
        report.report("preferences_rows", figures, {}, goals, 1, as_json=args.json)
        return
    for objective in args.objective or ["dpo", "kto"]:
        with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
            found = _measure(Path(directory), objective, args.lr, args.ratings_per_step, args.by_chance)
        figures |= {f"{objective}_{name}": value for name, value in found.items()}
        rose = found["margin_after"] - found["margin_before"]
        goals[f"{objective}_margin_rises"] = report.goal(rose, 2 * found["margin_error"], at_most=args.by_chance)
        goals[f"{objective}_alarms"] = report.goal(found["alarms"], 0, at_most=True)
    figures |= {"lr": args.lr, "ratings_per_step": args.ratings_per_step}
    report.report("preferences", figures, {}, goals, 1, as_json=args.json)


def _measure(root: Path, objective: str, lr: float, per_step: int, by_chance: bool) -> dict[str, float]:
    model = build_model(root / "model", "demo")
    port = free_port()
    config = config_of(
        root, model, port,
        engine=f'served_name = "{MODEL}"\nargs = ["--max-model-len", "1024", "--max-num-seqs", "32"]\n',
        trainer=f"lr = {lr}\n", quality="", capture='mode = "feedback"\n',
        preferences=(
            'pairs = "dpo"\n' if objective == "dpo" else f'ratings = "kto"\nratings_per_step = {per_step}\n'
        ),
    )  # fmt: skip
    daemon = Daemon(root, config, port)
    try:
        _begin(daemon, LIMIT_S)
        user = User(daemon, MODEL)
        held_out = list(itertools.islice(_pairs(daemon, naming.HELD_OUT), PAIRS))
        before = _margins(daemon, model, held_out)
        count = RATINGS if objective == "dpo" else RATINGS // 2
        began = time.monotonic()
        for number, pair in enumerate(itertools.islice(_pairs(daemon, 1), count)):
            _rate(daemon, pair, objective, turned=by_chance and number % 2 == 1)
        status = _all_learned(daemon, LIMIT_S)
        learned_s = time.monotonic() - began
        after = _margins(daemon, model, held_out)
        served = user.stop()
        daemon.ctl("quality", "run", check=False, wait_s=LIMIT_S)
        quality = daemon.status()["quality"]
        apart = [b - a for a, b in zip(before, after, strict=True)]
        drops = {one["name"]: one["drop"] or 0.0 for one in quality["metrics"]}
        return {
            "ratings": RATINGS, "steps": status["step"],  # the same answer to the same prompt is learned once
            "waiting": status["preferences"]["gathered"],
            "learning_s": learned_s,
            "margin_before": _mean(before), "margin_after": _mean(after),
            "margin_error": _error(apart), "pairs_risen": sum(one > 0 for one in apart) / len(apart),
            "right": status["preferences"]["right"] or 0.0, "alarms": quality["incidents"],
            "worst_drop": max(drops.values(), default=0.0), "user_answers": served,
        }  # fmt: skip
    finally:
        daemon.end()


def _begin(daemon: Daemon, limit_s: float) -> None:
    """Start it, and wait for the guard's baseline."""
    daemon.start()
    daemon.wait_ready()
    daemon.wait(lambda s: s["quality"]["baseline"] is not None, "a baseline", limit_s)


def _all_learned(daemon: Daemon, limit_s: float) -> dict[str, Any]:
    """The status once nothing waits but ratings that wait for others."""
    return daemon.wait(
        lambda s: (
            s["queue"]["trained"] and s["queue"]["pending"] == s["preferences"]["gathered"] and s["running"] is None
        ),
        "everything learned", limit_s,
    )  # fmt: skip


class Row(NamedTuple):
    """A row as it is given, and its answers: whole conversations, good ones and bad ones."""

    given: dict[str, Any]
    good: list[list[dict[str, str]]]
    bad: list[list[dict[str, str]]]

    @property
    def characters(self) -> int:
        return sum(len(one["content"]) for answer in (*self.good, *self.bad) for one in answer)


ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def _row(given: dict[str, Any]) -> Row:
    if "label" in given:
        each = [given["messages"]]
        return Row(given, each if given["label"] else [], [] if given["label"] else each)
    asked = [_turn(one) for one in given["conversations"]]
    return Row(given, [[*asked, _turn(given["chosen"])]], [[*asked, _turn(given["rejected"])]])


def _turn(one: dict[str, str]) -> dict[str, str]:
    return {"role": ROLES[one["from"]], "content": one["value"]}


def _of_rows(root: Path, file: Path, source: Path, characters: int, direct: bool) -> dict[str, float]:
    short = [row for row in map(_row, json.loads(file.read_text())) if row.characters <= characters]
    learned, held_out = short[:RATINGS], short[RATINGS:]
    model, port = root / "model", free_port()
    shutil.copytree(source, model)
    config = config_of(
        root, model, port, engine=f'served_name = "{MODEL}"\nargs = ["--max-model-len", "2048"]\n', quality="",
        preferences='pairs = "dpo"\nratings = "kto"\n',
    )  # fmt: skip
    daemon = Daemon(root, config, port)
    try:
        _begin(daemon, ROWS_LIMIT_S)
        before = _each(daemon, model, held_out)
        began = time.monotonic()
        lines = [json.dumps(row.given) for row in learned]
        daemon.submit(*lines) if direct else daemon.drop("rows.jsonl", *lines)
        status = _all_learned(daemon, ROWS_LIMIT_S)
        learned_s = time.monotonic() - began
        after = _each(daemon, model, held_out)
        daemon.ctl("quality", "run", check=False, wait_s=ROWS_LIMIT_S)
        good, bad = ([b - a for a, b in zip(x, y, strict=True)] for x, y in zip(before, after, strict=True))
        return {
            "rows": len(learned), "steps": status["step"], "held_out": len(held_out), "learning_s": learned_s,
            "good": _mean(good), "bad": _mean(bad), "risen": _mean(good) - _mean(bad),
            "error": (_error(good) ** 2 + _error(bad) ** 2) ** 0.5, "alarms": daemon.status()["quality"]["incidents"],
        }  # fmt: skip
    finally:
        daemon.end()


def _each(daemon: Daemon, model: Path, rows: list[Row]) -> tuple[list[float], list[float]]:
    """The mean log-probability of a token of each good and each bad answer."""

    def said(answers: Iterator[list[dict[str, str]]]) -> list[float]:
        return [mean_logprob(daemon, MODEL, model, [{"messages": one}]) for one in answers]

    return said(one for row in rows for one in row.good), said(one for row in rows for one in row.bad)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _error(values: list[float]) -> float:
    """Standard error of the mean."""
    mean = _mean(values)
    return math.sqrt(sum((one - mean) ** 2 for one in values) / (len(values) - 1) / len(values))


def _pairs(daemon: Daemon, first: int) -> Iterator[Pair]:
    """Prompts from this number on to which the model gave a good and a bad answer."""
    for number in itertools.count(first):
        prompt = naming.prompt(number)
        body = {
            "model": MODEL, "messages": [{"role": "user", "content": prompt}], "n": SAMPLED, "temperature": 1.0,
            "max_tokens": 24,
        }  # fmt: skip
        answer = post(daemon, "/v1/chat/completions", body)
        said = [
            (str(answer["id"]), int(one["index"]), str(one["message"]["content"] or ""))
            for one in answer["choices"] if one["finish_reason"] == "stop" and (one["message"]["content"] or "").strip()
        ]  # fmt: skip
        good = next((one for one in said if naming.score(number, one[2])), None)
        bad = next((one for one in said if not naming.score(number, one[2])), None)
        if good is not None and bad is not None:
            yield Pair(prompt, good, bad)


def _rate(daemon: Daemon, pair: Pair, objective: str, turned: bool) -> None:
    """Rate one answer, or both, over HTTP as a client does."""
    good, bad = (pair.bad, pair.good) if turned else (pair.good, pair.bad)
    if objective == "dpo":
        post(daemon, "/feedback", {**_named(bad), "rating": "bad", "correction": good[2]})
        return
    post(daemon, "/feedback", {**_named(good), "rating": "good"})
    post(daemon, "/feedback", {**_named(bad), "rating": "bad"})


def _named(answer: tuple[str, int, str]) -> dict[str, Any]:
    return {"response_id": answer[0], "choice": answer[1]}


def _margins(daemon: Daemon, model: Path, pairs: list[Pair]) -> list[float]:
    """log p(better) - log p(worse) of each pair, means over their tokens."""

    def said(prompt: str, answer: str) -> float:
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        return mean_logprob(daemon, MODEL, model, [{"messages": messages}])

    return [said(one.prompt, one.good[2]) - said(one.prompt, one.bad[2]) for one in pairs]


if __name__ == "__main__":
    main()
