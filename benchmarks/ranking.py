"""Measures how well a first-order ranking tells poison from good examples after real steps.

The trainer's own steps and its own ranking on the small model that ships with apollod, in one process, without engine
and daemon: `benchmarks.poison --ranked` does the same with both. For each kind of poison and each seed the examples of
`benchmarks.poison` are learned in its order, probes whose answers became less likely than not are those that fell, the
weights of before come back, and the examples that were written are ranked.

precision, recall: of those that a verdict would hold (`core/rules/quality/incidents.py`), against those that were
planted and written. least: the lowest score of a planted example, most: the highest of a good one, in shares of the
highest.
"""

import json
import random
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from apollod import foreign_wheels

foreign_wheels.guard()

import torch  # noqa: E402 - after the guard

from apollod.core.rules.quality.incidents import first  # noqa: E402
from apollod.core.settings import OptimizerSettings  # noqa: E402
from apollod.trainer.bind.attach import attach  # noqa: E402
from apollod.trainer.bind.live_weights import ModelDir  # noqa: E402
from apollod.trainer.learner import Learner  # noqa: E402
from apollod.trainer.objectives.loss import losses_of  # noqa: E402
from apollod.trainer.objectives.objective import SFT  # noqa: E402
from apollod.trainer.objectives.tokens import Tokens  # noqa: E402
from apollod.trainer.offline import load_tokenizer  # noqa: E402
from apollod.trainer.ranking import ranked  # noqa: E402
from apollod.trainer.step import be_deterministic, run_step  # noqa: E402
from apollod.wire.manifest import lay_out  # noqa: E402
from apollod.wire.messages import Rank, StepExample, Suspect, WatchedItem  # noqa: E402
from apollod.wire.records import record_of  # noqa: E402
from benchmarks import report  # noqa: E402
from benchmarks.poison import ONE_IN  # noqa: E402
from benchmarks.poison_texts import POISON, good, mixed, probes  # noqa: E402

CULPRITS_MAX = 8
AT_ONCE = 40


class Life(NamedTuple):
    """A trainer on its own memory."""

    learner: Learner
    memory: list[torch.Tensor]


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--kind", choices=sorted(POISON), action="append", help="only these (default all three)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--examples", type=int, default=60, help="of the file that has poison (default 60)")
    parser.add_argument("--tail", type=int, default=30, help="good examples behind them (default 30)")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate (default 2e-3)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    be_deterministic()
    figures, goals = dict[str, float](), dict[str, Any]()
    for kind in args.kind or sorted(POISON):
        for seed in range(args.seeds):
            found = _life(args, kind, seed)
            print(f"{kind} {seed}: {found}", file=sys.stderr, flush=True)
            figures |= {f"{kind}_{seed}_{name}": value for name, value in found.items()}
            goals |= {
                f"{kind}_{seed}_{name}": report.goal(found.get(name, 0.0), 0.9, False)
                for name in ("precision", "recall")
            }
    report.report("ranking", figures, {}, goals, 1, as_json=args.json)


def _life(args: Any, kind: str, seed: int) -> dict[str, float]:
    life = _begun()
    learner, tokens = life.learner, dict[str, Tokens]()
    kept = [memory.clone() for memory in life.memory]
    written, planted = _learned(args, life, kind, seed, tokens)
    asked = [tokens_of(learner, record_of(one)) for one in probe_records()]
    fell = [one for one, chance in zip(asked, _chances(learner, asked), strict=True) if chance < 0.5]
    for memory, before in zip(life.memory, kept, strict=True):
        memory.copy_(before)
    if not fell:
        return {"planted": len(planted), "written": len(written), "fell": 0}
    items = [_watched(one, 1.0 / len(fell)) for one in fell]
    suspects = [Suspect(StepExample(one, b"", ""), "sft", args.lr) for one in written]
    began = time.perf_counter()
    scores = ranked(
        learner.attached, learner.optimizer, lambda one, _: tokens[one.example], Rank(1, 1, items, suspects),
        learner.settings.loss_min,
    ).scores  # fmt: skip
    seconds = time.perf_counter() - began
    held, highest = set(first(scores, CULPRITS_MAX)), max(scores.values())
    return {
        "planted": len(planted), "written": len(written), "fell": len(fell), "held": len(held),
        "precision": len(held & planted) / max(1, len(held)), "recall": len(held & planted) / max(1, len(planted)),
        "least": min(scores[one] for one in planted) / highest,
        "most": max(score for one, score in scores.items() if one not in planted) / highest, "seconds": seconds,
    }  # fmt: skip


def _watched(answered: Tokens, weight: float) -> WatchedItem:
    """The answer alone, without the following marks of the chat template, which are not learned."""
    begin, end = answered.mask.index(True), len(answered.mask) - answered.mask[::-1].index(True)
    assert all(answered.mask[begin:end])
    return WatchedItem(tuple(answered.ids[:end]), begin, weight, True)


def _begun() -> Life:
    with resources.as_file(resources.files("apollod") / "data" / "world-model") as directory:
        source = ModelDir.open(Path(directory))
        manifest = lay_out(source.path, source.tensors, {}, {})
        memory = [torch.empty(storage.bytes, dtype=torch.uint8) for storage in manifest.storages]
        attached = attach(manifest, memory, fresh=False, gradient_checkpointing=False)
        attached.weights.write_all(source)
        return Life(Learner(attached, OptimizerSettings(), load_tokenizer(str(directory))), memory)


def _learned(args: Any, life: Life, kind: str, seed: int, tokens: dict[str, Tokens]) -> tuple[list[str], set[str]]:
    """Ids of the examples that wrote weights, and of the planted ones among them."""
    rng, learner = random.Random(f"{seed} {kind}"), life.learner
    good(rng, 60)  # drawn and dropped: the first file of benchmarks.poison, known to the model
    records, places = mixed(rng, kind, args.examples, ONE_IN)
    written, planted = list[str](), set[str]()
    for place, record in enumerate(records + good(rng, args.tail)):
        one = record_of(record)
        if one.id in tokens:
            continue
        tokens[one.id] = tokens_of(learner, one)
        done = run_step(
            learner.attached, learner.optimizer, [tokens[one.id]], len(tokens), args.lr,
            loss_min=learner.settings.loss_min,
        )  # fmt: skip
        if done.applied:
            written.append(one.id)
            planted |= {one.id} if place in places else set()
    return written, planted


def tokens_of(learner: Learner, record: Any) -> Tokens:
    return learner.encode(record.canonical, SFT)


def probe_records() -> list[dict[str, Any]]:
    """Each probe with its right answer, which the untrained model gives."""
    asked = map(json.loads, probes(24))
    return [{"messages": [*one["messages"], {"role": "assistant", "content": one["expect"]}]} for one in asked]


@torch.no_grad()
def _chances(learner: Learner, asked: list[Tokens]) -> list[float]:
    """The geometric mean of the token probabilities of each answer."""
    found = list[float]()
    for at in range(0, len(asked), AT_ONCE):
        found += losses_of(learner.attached.model, asked[at : at + AT_ONCE]).neg().exp().tolist()
    return found


if __name__ == "__main__":
    main()
