"""A child process that measures one training step: what it holds before, and what it holds at the highest moment.

usage: python -m support.memory_child, with lines like '["MODEL_DIR", {"tokens": 64, "rank": 16}]' on stdin

Answers each line with one JSON object, by a process of its own that is forked when imports are done and kernels
loaded, but before anything was computed; `measured` has this one forked from the fork server, which has both.
"""

import ctypes
import gc
import json
import math
import os
import sys
from array import array
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from support.fork_server import fork_server

from apollod.adapters.system.hardware import products_dtype

if TYPE_CHECKING:
    from apollod.trainer.objectives.tokens import Tokens

TESTS = Path(__file__).parent.parent


_known: dict[str, dict[str, Any]] = {}
"""Answers by request: the same step is compared with several others."""


MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of mallopt(3)"""


@cache
def _measurer() -> tuple[IO[str], IO[str]]:
    """Standard input and output of one process for a run of tests; it ends when the first is closed."""
    (asked, asking), (answered, answering) = os.pipe(), os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "HF_HUB_OFFLINE": "1"}
    fork_server().start(["-m", "support.memory_child"], environment, (asked, answering, 2))
    os.close(asked)
    os.close(answering)
    return os.fdopen(asking, "w"), os.fdopen(answered)


def measured(model_dir: Path, **options: Any) -> dict[str, Any]:
    """What a child says of a step on this model, in the products of this processor unless `products` says others."""
    options.setdefault("products", products_dtype("auto"))
    request = json.dumps([str(model_dir), options])
    if request not in _known:
        asking, answered = _measurer()
        asking.write(request + "\n")
        asking.flush()
        answer = answered.readline()
        assert answer.strip(), f"no answer to {request}: see stderr"
        _known[request] = json.loads(answer)
    return _known[request]


def serve() -> None:
    """Answer line by line until stdin is closed."""
    from apollod import foreign_wheels

    foreign_wheels.guard()
    import numba  # noqa: F401
    import transformers.models.llama.modeling_llama
    import transformers.models.qwen3.modeling_qwen3
    import transformers.models.qwen3_5.modeling_qwen3_5  # noqa: F401
    from support import trainer_host  # noqa: F401

    from apollod.trainer import step  # noqa: F401
    from apollod.trainer.bind import attach  # noqa: F401
    from apollod.trainer.kernels import kernels_cpu

    kernels_cpu.warm_up()
    ctypes.CDLL("libc.so.6").mallopt(MMAP_THRESHOLD, 65536)  # what is freed is gone
    gc.freeze()
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            sys.stdin.close()
            model_dir, options = json.loads(line)
            main(Path(model_dir), **options)
            sys.stdout.flush()
            os._exit(0)  # an error ends in a traceback and no answer
        if os.waitpid(child, 0)[1]:
            print(flush=True)  # noqa: T201


def main(
    model_dir: Path,
    tokens: int,
    rank: int,
    gradient_checkpointing: bool = False,
    rows: bool = True,
    name: str = "apollo",
    products: str = "bf16",
    wordings: int = 1,
    anchors: int = 0,
    anchor_tokens: int = 0,
    kernels: int = 1024,
) -> None:
    """Two steps; the second is measured, when every kernel is compiled and every moment has its memory.

    `wordings`: examples of so many `tokens` that go through the model as one batch; `anchors`, of `anchor_tokens`, are
    held, with the likeliest tokens that a teacher gives in each place. `kernels`: most that oneDNN keeps."""
    os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = str(kernels)  # read when it makes the first
    from apollod import foreign_wheels

    foreign_wheels.guard()
    import msgspec
    import torch
    from support.model_memory import Memory

    from apollod.core.facts.training import StepTerms
    from apollod.products import products_in
    from apollod.trainer.bind.attach import attach
    from apollod.trainer.bind.mapped_memory import open_memory_file
    from apollod.trainer.checkpoints.weights_snapshot import Snapshot
    from apollod.trainer.objectives.tokens import Tokens
    from apollod.trainer.optim.optimizers import make_optimizer
    from apollod.trainer.step import be_deterministic, run_step
    from apollod.wire.messages import OptimizerSettings

    torch.set_num_threads(1)
    be_deterministic()
    memory = Memory.of(model_dir)
    manifest = memory.manifest
    if json.loads((model_dir / "config.json").read_text()).get("tie_word_embeddings"):
        manifest = msgspec.structs.replace(manifest, tied={"lm_head.weight": "model.embed_tokens.weight"})
    storages = [open_memory_file(manifest.storages[0], memory.fd)]
    attached = attach(manifest, storages, False, gradient_checkpointing)
    optimizer = make_optimizer(OptimizerSettings(name, rank=rank), attached.trainable, attached.round_to)
    optimizer.attach()
    if not rows:
        optimizer.takes_rows = lambda parameter: False
    batch = [_example(tokens, seed, Tokens) for seed in range(wordings)]
    held = [_anchor(anchor_tokens, seed, Tokens) for seed in range(anchors)]
    terms = StepTerms(together=wordings > 1, held=tuple(map(str, range(anchors))), hold=1.0)
    mode = products_in(products)
    with mode:
        run_step(attached, optimizer, batch, 1, 1e-3, terms, anchors=held)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here
    before = resident("VmRSS")
    with mode:
        done = run_step(attached, optimizer, batch, 2, 1e-3, terms, anchors=held)
    assert done.applied, done.note
    weights = sum(t.numel() * t.element_size() for t in attached.weights.views.values())
    found = {"peak": resident("VmHWM") - before, "fingerprint": done.fingerprint}
    before, snapshot = resident("RssAnon"), Snapshot(attached.weights, optimizer.state_tensors())
    assert snapshot.copy()
    found["snapshot"] = resident("RssAnon") - before
    print(json.dumps(found | {"state_bytes": optimizer.state_bytes(), "weights_bytes": weights}))  # noqa: T201


def _example(tokens: int, seed: int, made: "type[Tokens]") -> "Tokens":
    """All but the first token are learned."""
    return made([(7 * i + 13 * seed) % 400 for i in range(tokens)], [False] + [True] * (tokens - 1))


def _anchor(tokens: int, seed: int, made: "type[Tokens]") -> "Tokens":
    """With LIKELIEST tokens in each place, each as likely as the others."""
    from apollod.adapters.llm.log_probabilities import LIKELIEST

    example = _example(tokens, 100 + seed, made)
    columns: dict[str, array[float] | array[int]] = {
        "ids": array("q", [(place + n) % 400 for place in range(tokens - 1) for n in range(LIKELIEST)]),
        "teacher": array("f", [math.log(0.9 / LIKELIEST)] * (LIKELIEST * (tokens - 1))),
    }
    return replace(example, columns=columns)


def resident(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    serve()
