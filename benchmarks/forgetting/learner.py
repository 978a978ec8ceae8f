"""The model of the small world, trained as the daemon trains it, without a daemon: the trainer's own step on private
memory, bf16 weights, one example a step. One thread, so that the bits are the same wherever processors are."""

import json
from collections.abc import Sequence
from pathlib import Path

from apollod import foreign_wheels

foreign_wheels.guard_lazily()

import torch  # noqa: E402

import apollod  # noqa: E402
from apollod.core.settings import OptimizerName, OptimizerSettings  # noqa: E402
from apollod.demo.corpus import Message  # noqa: E402
from apollod.demo.world import evaluate  # noqa: E402
from apollod.products.mode import products_in  # noqa: E402
from apollod.trainer.bind.attach import attach  # noqa: E402
from apollod.trainer.bind.tensor_files import ModelDir  # noqa: E402
from apollod.trainer.kernels import kernels_cpu  # noqa: E402
from apollod.trainer.message_loop import Learner  # noqa: E402
from apollod.trainer.objectives.encoding import load_tokenizer  # noqa: E402
from apollod.trainer.objectives.sft import SFT  # noqa: E402
from apollod.trainer.objectives.tokens import Tokens  # noqa: E402
from apollod.trainer.offline import lay_out  # noqa: E402
from apollod.trainer.step import be_deterministic, run_step  # noqa: E402
from apollod.wire.records import parse_line  # noqa: E402
from benchmarks.forgetting.tasks import Question  # noqa: E402

MODEL = Path(apollod.__file__).parent / "data" / "world-model"

State = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


class Model:
    """The pretrained weights and an optimizer that has done no step."""

    def __init__(self, optimizer: OptimizerName) -> None:
        torch.set_num_threads(1)
        be_deterministic()
        if kernels_cpu.AVAILABLE:
            kernels_cpu.warm_up()
        source = ModelDir.open(MODEL)
        manifest = lay_out(source, {}, {})
        memory = [torch.empty(storage.bytes, dtype=torch.uint8) for storage in manifest.storages]
        attached = attach(manifest, memory, fresh=False, gradient_checkpointing=False)
        attached.weights.write_all(source)
        self._learner = Learner(attached, OptimizerSettings(optimizer), load_tokenizer(str(MODEL)))

    def encode(self, messages: list[Message]) -> Tokens:
        """A conversation as the trainer learns it."""
        line = json.dumps({"messages": messages}).encode()
        return self._learner.encode(parse_line(line).canonical, SFT)

    def step(self, tokens: Tokens, step: int, lr: float) -> None:
        """Learn one example."""
        with products_in(self._learner.products):
            run_step(self._learner.attached, self._learner.optimizer, [tokens], step, lr)

    def passed(self, questions: Sequence[Question]) -> list[bool]:
        """Of greedy answers."""
        with products_in(self._learner.products):
            texts = evaluate.answers(
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
        """To what `keep` gave."""
        weights, moments = state
        for name, view in self._learner.attached.weights.views.items():
            view.copy_(weights[name])
        self._learner.optimizer.load_state_tensors(moments)
