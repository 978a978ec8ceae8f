"""Measures the cost of holding: a step with the anchors that the daemon would choose, against the same step without
any.

Both on the same model and examples, in turns in one process on one thread, with the undo ring; a ratio is the median
over rounds, so that a slow phase of the machine affects both alike: of elapsed time, and of CPU seconds beside it,
since a neighbour costs waiting, not work. Anchors are shipped prompts with a random answer and a made-up teacher: their
content does not affect the time. The choice is `core.facts.holding`, once with general anchors only and once with
those of lessons among them; and with the choice for a round of practice of a lesson, whose wordings are one batch.
"""

import tempfile
import time
from array import array
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch

from apollod import foreign_wheels

foreign_wheels.guard_lazily()

from apollod.core.facts.holding import Anchor, HoldingState, Kin, held_by  # noqa: E402
from apollod.core.facts.lessons.rounds import PRACTISED  # noqa: E402
from apollod.core.facts.training import StepTerms  # noqa: E402
from apollod.core.settings import LessonSettings, OptimizerSettings  # noqa: E402
from apollod.supervisor.executor.holding_effects import ANSWER_TOKENS, shipped_prompts  # noqa: E402
from apollod.trainer.bind.attach import attach  # noqa: E402
from apollod.trainer.bind.live_weights import ModelDir  # noqa: E402
from apollod.trainer.learner import Learner  # noqa: E402
from apollod.trainer.objectives.context import TEACHER  # noqa: E402
from apollod.trainer.objectives.encoding import load_tokenizer  # noqa: E402
from apollod.trainer.objectives.tokens import IDS, Tokens  # noqa: E402
from apollod.trainer.step import be_deterministic, run_step  # noqa: E402
from apollod.wire.manifest import lay_out  # noqa: E402
from benchmarks import report  # noqa: E402
from benchmarks.daemon import build_model  # noqa: E402

GOAL = 1.3
LIKELIEST = 16
LENGTHS = (40, 300)


class Case(NamedTuple):
    """Steps of an example of so many tokens. `lessons`: with anchors of lessons; `practice`: a round of practice, with
    as many examples as that has."""

    name: str
    tokens: int
    lessons: bool = False
    practice: bool = False

    @property
    def examples(self) -> int:
        return PRACTISED if self.practice else 1


CASES = (
    *(Case(f"{tokens}{'_lessons' * lessons}", tokens, lessons) for tokens in LENGTHS for lessons in (False, True)),
    Case("practice", LENGTHS[0], True, True),
)


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
        learner, anchors = learner_of(model), _anchors(model)
        measured, ratios = dict[str, float](), dict[str, float]()
        for case in CASES:
            held, name = _held(case, anchors), case.name
            times = _times(learner, case, held, args.rounds)
            for suffix, (free, holding) in times.items():
                measured[f"step_{name}{suffix}_s"] = report.median(free)
                measured[f"holding_{name}{suffix}_s"] = report.median(holding)
                ratios[f"holding_to_step_{name}{suffix}"] = report.median(
                    [b / a for a, b in zip(free, holding, strict=True)]
                )
            measured[f"held_{name}"] = len(held)
            measured[f"held_{name}_tokens"] = sum(len(one.ids) for one in held)
    measured["rounds"] = args.rounds
    goals = {name: report.goal(ratios[name], GOAL, at_most=True) for name in ratios if "_300" in name}
    report.report("holding", measured, ratios, goals, args.threads, as_json=args.json)


def learner_of(model: Path) -> Learner:
    """A trainer of its own with the weights of a directory, and room to undo steps."""
    source = ModelDir.open(model)
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if "lm_head.weight" not in source.tensors else {}
    manifest = lay_out(source.path, source.tensors, {}, tied)
    memory = [torch.empty(storage.bytes, dtype=torch.uint8) for storage in manifest.storages]
    attached = attach(manifest, memory, fresh=False, gradient_checkpointing=False)
    attached.weights.write_all(source)
    return Learner(attached, OptimizerSettings(), load_tokenizer(str(model)), undo_bytes=1 << 30)


def _anchors(model: Path) -> list[Tokens]:
    """One anchor for each shipped prompt."""
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
    """The daemon's choice of anchors for a step of so many tokens."""
    own = HoldingState(
        anchors={
            str(n): Anchor(str(n), "lesson" if case.lessons and n % 2 else "general", "", "", len(one.ids), "d", 0.1)
            for n, one in enumerate(anchors)
        }
    )
    kin = Kin() if case.practice else None
    return [anchors[int(id_)] for id_ in held_by(own, LessonSettings(), case.tokens * case.examples, kin)]


def _times(learner: Learner, case: Case, held: list[Tokens], rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of a step without and with anchors, in turns: elapsed, and of the CPU ("_cpu")."""
    chance, length = Random(case.tokens), case.tokens
    vocabulary = learner.attached.model.config.get_text_config().vocab_size
    learned = [False] * (length // 2) + [True] * (length - length // 2)
    batch = [Tokens([chance.randrange(vocabulary) for _ in range(length)], learned) for _ in range(case.examples)]
    clocks = {"": time.perf_counter, "_cpu": time.process_time}
    found: dict[str, tuple[list[float], list[float]]] = {suffix: ([], []) for suffix in clocks}
    terms = StepTerms(hold=1.0, together=case.practice)
    for turn in range(rounds + 1):
        for n, anchors in enumerate(((), held)):
            began = {suffix: clock() for suffix, clock in clocks.items()}
            run_step(learner.attached, learner.optimizer, batch, 2 * turn + n + 1, 1e-6, terms, anchors=anchors)
            for suffix, clock in clocks.items():
                if turn:  # the first turn warms up
                    found[suffix][n].append(clock() - began[suffix])
    return found


if __name__ == "__main__":
    main()
