"""What holding costs: a step with the anchors that the daemon would choose, against the same step without any.

Both on the same model and examples, in turns in one process on one thread, with the ring that keeps steps to undo them;
a ratio is the median of those of the rounds, so that a slow phase of the machine hits both alike. Anchors are prompts
that ship with a random answer of 40 tokens and a made-up teacher: what they say makes no difference to the time. The
choice is `core.holding.choice`, once with general anchors only and once with those of lessons among them.
"""

import tempfile
import time
from array import array
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch

from apollod.core.holding.choice import held_by
from apollod.core.holding.state import Anchor, HoldingState
from apollod.core.settings import LessonSettings, OptimizerSettings
from apollod.supervisor.executor.holding_effects import ANSWER_TOKENS, shipped_prompts
from apollod.trainer.bind.attach import attach
from apollod.trainer.bind.tensor_files import ModelDir
from apollod.trainer.message_loop import Learner
from apollod.trainer.objectives.context import TEACHER
from apollod.trainer.objectives.encoding import load_tokenizer
from apollod.trainer.objectives.tokens import IDS, Tokens
from apollod.trainer.offline import lay_out
from apollod.trainer.step import be_deterministic, run_step
from benchmarks import report
from benchmarks.daemon import build_model

GOAL = 1.3
LIKELIEST = 16
LENGTHS = (40, 300, 1000)


class Case(NamedTuple):
    """Steps of so many tokens; are there anchors of lessons?"""

    tokens: int
    lessons: bool


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--kind", default="wide", help="model of apollod.demo.tiny_model")
    parser.add_argument("--model", help="a model directory instead")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    be_deterministic()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        model = Path(args.model) if args.model else build_model(Path(directory) / "model", args.kind)
        learner, anchors = _learner(model), _anchors(model)
        measured, ratios = dict[str, float](), dict[str, float]()
        for case in (Case(tokens, lessons) for tokens in LENGTHS for lessons in (False, True)):
            held = _held(case, anchors)
            name = f"{case.tokens}{'_lessons' if case.lessons else ''}"
            free, holding = _times(learner, case.tokens, held, args.rounds)
            measured[f"step_{name}_s"], measured[f"holding_{name}_s"] = report.median(free), report.median(holding)
            measured[f"held_{name}"] = len(held)
            measured[f"held_{name}_tokens"] = sum(len(one.ids) for one in held)
            ratios[f"holding_to_step_{name}"] = report.median([b / a for a, b in zip(free, holding, strict=True)])
    measured["rounds"] = args.rounds
    goals = {name: report.goal(ratios[name], GOAL, at_most=True) for name in ratios if "_300" in name}
    report.report("holding", measured, ratios, goals, args.threads, as_json=args.json)


def _learner(model: Path) -> Learner:
    source = ModelDir.open(model)
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if "lm_head.weight" not in source.tensors else {}
    manifest = lay_out(source, {}, tied)
    memory = [torch.empty(storage.bytes, dtype=torch.uint8) for storage in manifest.storages]
    attached = attach(manifest, memory, fresh=False, gradient_checkpointing=False)
    attached.weights.write_all(source)
    return Learner(attached, OptimizerSettings(), load_tokenizer(str(model)), undo_bytes=1 << 30)


def _anchors(model: Path) -> list[Tokens]:
    """One for each prompt that ships."""
    tokenizer, chance = load_tokenizer(str(model)), Random(1)
    made = []
    for shipped in shipped_prompts():
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": shipped.prompt}], add_generation_prompt=True, return_dict=False
        )
        answer = [chance.randrange(len(tokenizer)) for _ in range(ANSWER_TOKENS)]
        asked = [chance.sample(range(len(tokenizer)), LIKELIEST) for _ in answer]
        columns: dict[str, array[float] | array[int]] = {
            IDS: array("q", [id_ for row in asked for id_ in row]),
            TEACHER: array("f", [-3.0] * (LIKELIEST * ANSWER_TOKENS)),
        }
        ids = list(prompt) + answer
        made.append(Tokens(ids, [False] * len(prompt) + [True] * ANSWER_TOKENS, 0, columns))
    return made


def _held(case: Case, anchors: list[Tokens]) -> list[Tokens]:
    """As the daemon chooses them for a step of so many tokens."""
    own = HoldingState(
        anchors={
            str(n): Anchor(str(n), "lesson" if case.lessons and n % 2 else "general", "", "", len(one.ids), "d", 0.1)
            for n, one in enumerate(anchors)
        }
    )
    return [anchors[int(id_)] for id_ in held_by(own, LessonSettings(), case.tokens)]


def _times(learner: Learner, length: int, held: list[Tokens], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of a step without and with what is held, in turns."""
    chance = Random(length)
    vocabulary = learner.attached.model.config.get_text_config().vocab_size
    example = Tokens(
        [chance.randrange(vocabulary) for _ in range(length)], [False] * (length // 2) + [True] * (length - length // 2)
    )
    found: tuple[list[float], list[float]] = ([], [])
    number = 0
    for turn in range(rounds + 1):
        for times, anchors in zip(found, ((), held), strict=True):
            number += 1
            began = time.perf_counter()
            run_step(learner.attached, learner.optimizer, [example], number, 1e-6, held=anchors, hold=1.0)
            if turn:
                times.append(time.perf_counter() - began)
    return found


if __name__ == "__main__":
    main()
