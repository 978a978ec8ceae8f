"""The trainer on memory of its own, for `apollod replay` in place of the live one.

The same loop, the same step. Only the weights lie in private memory, with the dtypes that the engine used: a gradient
is rounded to the dtype that its parameter is held in, so a `cast` parameter held as stored would get other bits.
"""

from math import isfinite
from pathlib import Path

import msgspec
import torch

from apollod.errors import ApolloError
from apollod.products import products_in
from apollod.trainer.bind.attach import attach
from apollod.trainer.bind.live_weights import ModelDir
from apollod.trainer.environment import chosen_kernels
from apollod.trainer.learner import Learner, bound
from apollod.trainer.message_loop import Loop
from apollod.trainer.objectives.encoding import load_tokenizer
from apollod.trainer.scoring import mean_logprob
from apollod.wire import messages as m
from apollod.wire.manifest import Manifest, lay_out

__all__ = ["Loop", "OfflineLoop", "lay_out"]


class OfflineLoop(Loop):
    """A loop that also handles `AttachCopy` and `ScoreReferences`."""

    _manifest: Manifest

    def _answer(self, message: m.FromSupervisor) -> msgspec.Struct | None:
        try:
            match message:
                case m.AttachCopy():
                    learner = self._learner
                    return self._attach_copy(message) if learner is None else self._change(learner, message)
                case m.ScoreReferences():
                    return _scored(self._attached(), message)
        except ApolloError as error:
            return m.Refused(str(message.__struct_config__.tag), " ".join(str(error).split()), error.hint)
        return super()._answer(message)

    def _attach_copy(self, message: m.AttachCopy) -> m.Bound:
        _use_threads(message.threads)
        device = message.device if torch.cuda.is_available() else "cpu"
        source = ModelDir.open(Path(message.model_dir))
        self._manifest = lay_out(source.path, source.tensors, message.held, message.tied)
        memory = [torch.empty(storage.bytes, dtype=torch.uint8, device=device) for storage in self._manifest.storages]
        attached = attach(self._manifest, memory, fresh=False, gradient_checkpointing=message.gradient_checkpointing)
        attached = attached.select(message.optimizer.layers, message.optimizer.freeze)
        attached.weights.write_all(source)
        self._learner = Learner(
            attached, message.optimizer, load_tokenizer(message.model_dir), kernels=message.kernels,
            products=message.products,
        )  # fmt: skip
        return bound(self._learner, self._manifest)

    def _change(self, learner: Learner, message: m.AttachCopy) -> m.Bound:
        """Continue with other settings, as after a restart of the daemon; weights stay, and so does the optimizer state
        of parameters that are still trained."""
        _use_threads(message.threads)
        state = {name: tensor.clone() for name, tensor in learner.optimizer.state_tensors().items()}
        old, learner.settings = learner.settings, message.optimizer
        learner.attached = learner.attached.select(message.optimizer.layers, message.optimizer.freeze)
        learner.kernels = chosen_kernels(message.kernels, message.optimizer.name, learner.attached.device)
        learner.forget()
        same = (old.layers, old.freeze) == (message.optimizer.layers, message.optimizer.freeze)
        learner.optimizer.load_state_tensors(state, strict=same)
        return bound(learner, self._manifest)


def _scored(learner: Learner, message: m.ScoreReferences) -> m.ReferencesScored:
    with products_in(learner.products):
        found = [mean_logprob(learner.attached.model, item.ids, item.start) for item in message.items]
    return m.ReferencesScored([one if isfinite(one) else None for one in found])


def _use_threads(threads: int) -> None:
    """Set the number of threads, like the trainer's start; compiled passes have one thread each."""
    if threads:
        torch.set_num_threads(threads)
