"""The model of the small world, trained like the daemon's, without a daemon: the trainer's own step on private memory,
bf16 weights, one example a step. One thread, so that the bits are the same for any number of processors."""

import json
from array import array
from collections.abc import Sequence
from pathlib import Path

from apollod import foreign_wheels

foreign_wheels.guard_lazily()

import torch  # noqa: E402

import apollod  # noqa: E402
from apollod.adapters.llm.log_probabilities import LIKELIEST  # noqa: E402
from apollod.core.facts.training import StepTerms  # noqa: E402
from apollod.core.settings import OptimizerName, OptimizerSettings  # noqa: E402
from apollod.demo.corpus import Message  # noqa: E402
from apollod.demo.world import pretrain  # noqa: E402
from apollod.products import products_in  # noqa: E402
from apollod.trainer.bind.attach import attach  # noqa: E402
from apollod.trainer.bind.live_weights import ModelDir  # noqa: E402
from apollod.trainer.kernels import kernels_cpu  # noqa: E402
from apollod.trainer.learner import Learner  # noqa: E402
from apollod.trainer.objectives.context import CONTEXT  # noqa: E402
from apollod.trainer.objectives.encoding import load_tokenizer  # noqa: E402
from apollod.trainer.objectives.objective import SFT  # noqa: E402
from apollod.trainer.objectives.tokens import Tokens  # noqa: E402
from apollod.trainer.step import be_deterministic, run_step  # noqa: E402
from apollod.wire.comparisons import with_file  # noqa: E402
from apollod.wire.manifest import lay_out  # noqa: E402
from apollod.wire.messages import StepDone  # noqa: E402
from apollod.wire.records import parse_line  # noqa: E402
from apollod.wire.teacher import GivenTeacher, Teacher, digest_of, write_teacher  # noqa: E402
from benchmarks.forgetting.tasks import Question  # noqa: E402

MODEL = Path(apollod.__file__).parent / "data" / "world-model"
AT_ONCE = 64
"""answers in one batch"""

State = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


class Model:
    """The pretrained weights and a fresh optimizer."""

    def __init__(self, optimizer: OptimizerName) -> None:
        torch.set_num_threads(1)
        be_deterministic()
        if kernels_cpu.AVAILABLE:
            kernels_cpu.warm_up()
        source = ModelDir.open(MODEL)
        manifest = lay_out(source.path, source.tensors, {}, {})
        memory = [torch.empty(storage.bytes, dtype=torch.uint8) for storage in manifest.storages]
        attached = attach(manifest, memory, fresh=False, gradient_checkpointing=False)
        attached.weights.write_all(source)
        self._learner = Learner(attached, OptimizerSettings(optimizer), load_tokenizer(str(MODEL)))

    def encode(self, messages: list[Message]) -> Tokens:
        """A conversation in the trainer's encoding."""
        return self._learner.encode(_record(messages), SFT)

    def step(
        self, batch: Sequence[Tokens], step: int, lr: float, held: Sequence[Tokens] = (), hold: float = 0.0
    ) -> StepDone:
        """Learn one example, or several as one batch, holding anchors."""
        own, terms = self._learner, StepTerms(hold=hold, together=len(batch) > 1)
        with products_in(own.products):
            return run_step(own.attached, own.optimizer, batch, step, lr, terms, anchors=held)

    @torch.no_grad()
    def says(self, answers: Sequence[Tokens]) -> list[tuple[bool, float]]:
        """For each answer: (true if it is the greedy one, its probability)."""
        found = list[tuple[bool, float]]()
        for start in range(0, len(answers), AT_ONCE):
            batch = answers[start : start + AT_ONCE]
            longest = max(len(one.ids) for one in batch)
            ids = torch.tensor([one.ids + one.ids[-1:] * (longest - len(one.ids)) for one in batch])
            with products_in(self._learner.products):
                logps = self._learner.attached.model(ids).logits.float().log_softmax(-1)
            for row, one in enumerate(batch):
                places = torch.tensor(one.mask).nonzero()[:, 0]
                of, right = logps[row, places - 1], ids[row, places]
                greedy = bool((of.argmax(-1) == right).all())
                found.append((greedy, float(of.gather(1, right[:, None]).sum().exp())))
        return found

    def frozen(self, asked: Sequence[list[Message]]) -> list[tuple[list[Message], Tokens]]:
        """Anchors: each prompt with a nonempty greedy answer, and that answer with its likeliest tokens at every
        position."""
        with products_in(self._learner.products):
            texts = pretrain.answers(self._learner.attached.model, self._learner.tokenizer, asked)
            return [
                (one, self._anchor([*one, {"role": "assistant", "content": text}]))
                for one, text in zip(asked, texts, strict=True)
                if text
            ]

    @torch.no_grad()
    def _anchor(self, messages: list[Message]) -> Tokens:
        said = self.encode(messages)
        places = torch.tensor(said.mask).nonzero()[:, 0]
        logits = self._learner.attached.model(torch.tensor([said.ids])).logits[0, places - 1]
        top = logits.float().log_softmax(-1).topk(LIKELIEST, -1)
        teacher = Teacher(
            array("I", [said.ids[place] for place in places]), array("I", top.indices.flatten().tolist()),
            array("f", top.values.flatten().tolist()), LIKELIEST,
        )  # fmt: skip
        blob = write_teacher(teacher)
        return self._learner.encode(with_file(_record(messages), GivenTeacher(digest_of(blob), blob)), CONTEXT)

    def passed(self, questions: Sequence[Question]) -> list[bool]:
        """For each question, true if the greedy answer passes."""
        with products_in(self._learner.products):
            texts = pretrain.answers(
                self._learner.attached.model, self._learner.tokenizer, [one.messages for one in questions]
            )
        return [one.passes(text) for one, text in zip(questions, texts, strict=True)]

    def keep(self) -> State:
        """A copy of weights and optimizer state."""
        weights = {name: view.detach().clone() for name, view in self._learner.attached.weights.views.items()}
        state = self._learner.optimizer.state_tensors()
        return weights, {name: tensor.clone() for name, tensor in state.items()}

    @torch.no_grad()
    def go_back(self, state: State) -> None:
        """Restore the result of `keep`."""
        weights, moments = state
        for name, view in self._learner.attached.weights.views.items():
            view.copy_(weights[name])
        self._learner.optimizer.load_state_tensors(moments)


def _record(messages: list[Message]) -> bytes:
    return parse_line(json.dumps({"messages": messages}).encode()).canonical
