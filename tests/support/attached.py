"""A model whose weights lie in a memory file, bound as a trainer binds it, with an optimizer or a whole learner."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.model_memory import Memory

from apollod.trainer import message_loop
from apollod.trainer.bind.attach import Attached, attach
from apollod.trainer.bind.mapped_memory import open_memory_file
from apollod.trainer.learner import Learner
from apollod.trainer.objectives.encoding import load_tokenizer
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.wire.messages import OptimizerSettings


def bound_to(memory: Memory, gradient_checkpointing: bool = False) -> Attached:
    return attach(
        memory.manifest, [open_memory_file(memory.manifest.storages[0], memory.fd)], True, gradient_checkpointing
    )


def attached_to(model_dir: Path, gradient_checkpointing: bool = False) -> Attached:
    return bound_to(Memory.of(model_dir), gradient_checkpointing)


def learning(model: Attached, name: str = "apollo") -> NamedOptimizer:
    """An optimizer of rank 16 whose hooks are on the model."""
    optimizer = make_optimizer(OptimizerSettings(name=name, rank=16), model.trainable, model.round_to)
    optimizer.attach()
    return optimizer


def loop_on(model_dir: Path, undo_bytes: int = 0, **settings: Any) -> message_loop.Loop:
    """What answers a supervisor's messages, without a process and a socket of its own."""
    loop = message_loop.Loop(SimpleNamespace(send=None))  # type: ignore[arg-type]
    options = OptimizerSettings(rank=16, **settings)
    loop._learner = Learner(attached_to(model_dir), options, load_tokenizer(str(model_dir)), undo_bytes=undo_bytes)
    return loop
