"""Computes the memory of training from shapes and settings alone: loads nothing, and does not import torch.

Sums are exact for weights and optimizer state. The rest is the memory at the peak of a step, with every
token learned. T: its tokens, of examples and anchors (kept.py), all of which have one backward
pass; t: those of the batch at work, and a, b of both; h, i, q, k: bytes count elements of hidden
size, MLP, query and key-value widths a token.

    kept for the backward pass: kept.py
        with gradient checkpointing 2 T h each, and while a layer is computed again, all of that one
    gradient: the largest at once; with accumulate > 1 all of them, all the time
    update: APOLLO's R and its product, 6 channels rank, and 36 channels; moments kept in bf16, as float32: 8 channels
        rank more; of the others a working block of 2^18 elements, 16 bytes each. A gradient in rows (embedding and
        head above 4096 entries): R alone, 4 channels rank, and 8 channels; two blocks of 4096 rows and one of R

The peak is one of these moments, the first three on top of the memory kept for the backward pass:

    loss      up to 4096 entries 14 T vocabulary; above, 10 t 4096 + 6 T h, the examples' before anything of anchors is
              kept; where t <= h / 2, 2 t vocabulary are kept; and of each token 60 for each that a teacher names
    head      above 4096 entries, in the backward pass: 6 t 4096 + 6 T h (4 t 4096 and those kept), and its update
    backward  a gradient (and the anchors' share of it) and its update, up to 1 MiB of small gradients that wait for
              theirs, 3 T i, and the layer that was computed again
    ends      the update of the embedding, when nothing else is left; where the head is stored as the embedding, with
              all that the head's gradient is made from

Fused kernels on a GPU (flash-linear-attention, say) keep less than the modules they replace.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from apollod.core.settings import OptimizerName, OptimizerSettings
from apollod.errors import ModelRefused
from apollod.model.decoder import expert_name, is_embedding, is_head, is_stack, layer_of, of_text, together  # fmt: skip
from apollod.model.kept import Batch, StepShape, is_bound, kept_bytes, largest_steps
from apollod.model.selection import selected
from apollod.model.shapes import ModelShapes, Stored, head_dim, layer_types

BLOCK_ROWS = 4096  # trainer/optim/row_gradient.py
BLOCK_ELEMENTS = 1 << 18  # trainer/optim/projector.py
QUANTIZED_BLOCK, QUANTIZED_MIN = 256, 4096  # trainer/optim/moments.py
WAITING_BYTES = 1 << 20  # trainer/optim/backward_updates.py
LIKELIEST = 16  # adapters/llm/log_probabilities.py
SPARE = 1.1
"""Memory that has to be available for the copy of a checkpoint, as a factor of its size."""


@dataclass(frozen=True)
class MemoryTable:
    """Bytes, for a `step` of this shape. `state` by kind of parameter; `kv_token`: KV cache of one token, None if
    config.json does not tell."""

    step: StepShape
    weights: int
    state: Mapping[str, int]
    gradients: int
    accumulated: int
    """bytes of gradients held through the whole step"""
    update: int
    activations: int
    bound: bool
    """`activations` and `layer` are upper bounds, not exact"""
    layer: int
    """memory of the layer being recomputed, with gradient checkpointing"""
    loss: int
    head: int
    backward: int
    ends: int
    kv_token: int | None
    kv_sequence: int
    """state of the linear layers for one sequence"""
    largest: int
    """the largest trained matrix with a whole gradient"""
    parameters: int
    trained: int
    trained_bytes: int

    @property
    def state_total(self) -> int:
        """Optimizer state, as `status` shows it."""
        return sum(self.state.values())

    @property
    def training(self) -> int:
        """Upper bound of the memory that training adds to the weights."""
        return self.state_total + self.accumulated + max(self.moments.values())

    @property
    def moments(self) -> dict[str, int]:
        """Memory beside weights, state and `accumulated`, by the moment of a step."""
        return {
            "the loss": self.activations + self.loss,
            "the update of the head": self.activations + self.head,
            "the backward pass of a layer": self.activations + self.backward,
            "the update of the embedding": self.ends,
        }

    @property
    def checkpoint(self) -> int:
        """The copy from which a checkpoint is written (trainer/checkpoints/weights_snapshot.py); in host memory,
        temporary."""
        return self.weights + self.state_total


def copied_bytes(weights: int, state: int) -> int:
    """Host memory that has to be available for a checkpoint while steps go on; `weights` in the dtypes of the files,
    `state` of the optimizer, bytes."""
    return int((weights + state) * SPARE)


def memory_table(
    model: ModelShapes,
    settings: OptimizerSettings,
    accumulate: int,
    gradient_checkpointing: bool,
    step: StepShape | None = None,
) -> MemoryTable:
    """The table for a step of this shape, or of one example of `max_tokens`; `accumulate`: examples learned one by one.
    Raises ModelRefused for an architecture with unknown activations or an invalid config, SelectionRefused like the
    trainer."""
    shape = step or StepShape(Batch(1, settings.max_tokens))
    return _largest(model, settings, accumulate, gradient_checkpointing, lambda _width: (shape,))


def bounded_table(
    model: ModelShapes,
    settings: OptimizerSettings,
    accumulate: int,
    gradient_checkpointing: bool,
    bound: int,
    holds: bool,
) -> MemoryTable:
    """The table for the step with the highest memory of all that have at most `bound` tokens, with anchors if it
    `holds` any. Raises likewise."""
    return _largest(
        model, settings, accumulate, gradient_checkpointing,
        lambda width: largest_steps(settings.max_tokens, bound, holds, width),
    )  # fmt: skip


def _largest(
    model: ModelShapes,
    settings: OptimizerSettings,
    accumulate: int,
    gradient_checkpointing: bool,
    steps: Callable[[int], Iterable[StepShape]],
) -> MemoryTable:
    """The table of the most expensive of these steps; `steps` takes the hidden size."""
    try:
        of_step = _tables(model, settings, accumulate, gradient_checkpointing)
        return max(map(of_step, steps(model.text["hidden_size"])), key=lambda table: table.training)
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise ModelRefused(
            f"config.json makes no sense ({error!r})", "restore it from where the model came from"
        ) from error


def _tables(
    model: ModelShapes, settings: OptimizerSettings, accumulate: int, gradient_checkpointing: bool
) -> Callable[[StepShape], MemoryTable]:
    """A function from a step to its table; everything independent of the step is computed once."""
    text, shapes = model.text, model.tensors
    candidates = [n for n, s in shapes.items() if s.dtype in ("bfloat16", "float32") and of_text(n)]
    names = selected(candidates, settings.layers, settings.freeze, shapes, tied_head(candidates))
    trained = dict(one for name in candidates if name in names for one in _matrices(name, shapes[name]))
    lowest, hidden, kept_of = _lowest(trained), text["hidden_size"], kept_bytes(model)
    in_rows = {n for n, s in trained.items() if accumulate == 1 and _comes_in_rows(n, s, settings)}
    gradients = {n: _gradient(s, n in in_rows) for n, s in trained.items()}
    accumulated = sum(gradients.values()) if accumulate > 1 else 0
    updates = {n: _update(s, settings, n in in_rows) for n, s in trained.items()}
    gradients = _as_they_come(gradients)
    taken = {n: updates[n] + (0 if accumulated else gradients[n]) for n in trained}
    ends = [n for n in trained if _is_end(n)]
    whole = [n for n in trained if n not in in_rows and n not in ends]
    share = max((gradients[n] for n in whole), default=0)
    waiting = min(WAITING_BYTES, sum(gradients[n] for n in whole)) if not accumulated else 0
    tied = not any(map(is_head, candidates))
    unchanged: dict[str, Any] = {
        "bound": is_bound(model),
        "weights": sum(s.bytes for s in shapes.values()),
        "state": _state(trained, settings),
        "gradients": accumulated or max(gradients.values()),
        "accumulated": accumulated,
        "update": max(updates.values()),
        "kv_token": _kv_token(model),
        "kv_sequence": _kv_sequence(text),
        "largest": max((s.bytes for n, s in trained.items() if n not in in_rows), default=0),
        "parameters": sum(prod(s.shape) for s in shapes.values()),
        "trained": sum(prod(s.shape) for s in trained.values()),
        "trained_bytes": sum(s.bytes for s in trained.values()),
    }

    def of_step(step: StepShape) -> MemoryTable:
        layers = kept_of(step)[lowest:]
        kept = len(layers) * 2 * step.tokens * hidden if gradient_checkpointing else sum(layers)
        layer = max(layers) if gradient_checkpointing else 0
        made_from, both = _head(text, step), share if step.held.tokens else 0
        return MemoryTable(
            **unchanged,
            step=step,
            activations=kept + step.tokens * (6 * hidden + 12),
            layer=layer,
            loss=_loss(text, step, kept // step.tokens),
            head=made_from + max((taken[n] for n in ends if is_head(n)), default=0),
            backward=max((taken[n] for n in whole), default=0) + waiting + both + layer
            + 3 * step.tokens * text["intermediate_size"],
            ends=max((taken[n] for n in ends), default=0) + (made_from if tied else 0),
        )  # fmt: skip

    return of_step


def _matrices(name: str, stored: Stored) -> Iterator[tuple[str, Stored]]:
    """A tensor as the optimizer sees it: a stack of experts as its matrices."""
    if not is_stack(name, stored.shape):
        yield name, stored
        return
    count, *shape = stored.shape
    for number in range(count):
        yield expert_name(name, number), Stored(stored.dtype, tuple(shape), stored.bytes // count)


def tied_head(names: list[str]) -> dict[str, str]:
    """The alias of a head that is stored as the embedding."""
    embedding = next(filter(is_embedding, names), None)
    return {} if embedding is None or any(map(is_head, names)) else {"lm_head.weight": embedding}


def _is_end(name: str) -> bool:
    return is_embedding(name) or is_head(name)


def _lowest(trained: Mapping[str, Stored]) -> int:
    """The layer at which the backward pass ends; below it nothing is kept."""
    if any(map(is_embedding, trained)):
        return 0
    return min((number for name in trained if (number := layer_of(name)) is not None), default=0)


# --- optimizer state ----------------------------------------------------------------------------------------------


def _state(trained: Mapping[str, Stored], settings: OptimizerSettings) -> dict[str, int]:
    """Bytes by kind; every parameter also has a count of its updates, int64."""
    kinds: dict[str, int] = {}
    for name, stored in trained.items():
        kind, own = PARAMETER_STATE[settings.name](name, stored, settings)
        kinds[kind] = kinds.get(kind, 0) + own + 8
        if settings.rounding == "master" and stored.dtype == "bfloat16":
            kinds["float32 master copy"] = kinds.get("float32 master copy", 0) + 4 * prod(stored.shape)
    return kinds


def _apollo(name: str, stored: Stored, settings: OptimizerSettings) -> tuple[str, int]:
    if not _projected(stored, settings.rank):
        return "Adam (vectors, convolutions, matrices below the rank)", _adamw(name, stored, settings)[1]
    part = "APOLLO, embedding and head" if _is_end(name) else "APOLLO, layers"
    return part, 2 * _item(settings) * max(stored.shape) * settings.rank + 8


def _adamw(_name: str, stored: Stored, settings: OptimizerSettings) -> tuple[str, int]:
    return "AdamW", 2 * _item(settings) * prod(stored.shape)


def _adafactor(_name: str, stored: Stored, _settings: OptimizerSettings) -> tuple[str, int]:
    return "Adafactor", 4 * (sum(stored.shape) if len(stored.shape) == 2 else prod(stored.shape))


def _adamw8bit(name: str, stored: Stored, settings: OptimizerSettings) -> tuple[str, int]:
    if (count := prod(stored.shape)) < QUANTIZED_MIN:
        return _adamw(name, stored, settings)
    return "AdamW, 8 bits", 2 * (count + 4 * -(-count // QUANTIZED_BLOCK))


PARAMETER_STATE: dict[OptimizerName, Callable[[str, Stored, OptimizerSettings], tuple[str, int]]] = {
    "apollo": _apollo, "adamw": _adamw, "adafactor": _adafactor, "adamw8bit": _adamw8bit,
}  # fmt: skip
"""by optimizer: kind and bytes of one parameter's state, without its count of updates (trainer/optim/optimizers.py)"""


def _item(settings: OptimizerSettings) -> int:
    return 2 if settings.moments == "bfloat16" else 4


def _projected(stored: Stored, rank: int) -> bool:
    return len(stored.shape) == 2 and min(stored.shape) >= rank


# --- temporary memory of a step -----------------------------------------------------------------------------------


def _comes_in_rows(name: str, stored: Stored, settings: OptimizerSettings) -> bool:
    large = len(stored.shape) == 2 and stored.shape[0] > BLOCK_ROWS
    fits = settings.name != "apollo" or (_projected(stored, settings.rank) and stored.shape[0] >= stored.shape[1])
    return large and fits and stored.dtype == "bfloat16" and _is_end(name)


def _as_they_come(gradients: Mapping[str, int]) -> dict[str, int]:
    """Bytes of the gradient that arrives with each parameter: an expert's comes with those of all others of its layer
    (trainer/bind/attach.py)."""
    whole: dict[str, int] = {}
    for name, count in gradients.items():
        whole[together(name)] = whole.get(together(name), 0) + count
    return {name: whole[together(name)] for name in gradients}


def _gradient(stored: Stored, in_rows: bool) -> int:
    return 2 * BLOCK_ROWS * stored.shape[1] * 2 if in_rows else stored.bytes


def _update(stored: Stored, settings: OptimizerSettings, in_rows: bool) -> int:
    if settings.name != "apollo" or not _projected(stored, settings.rank):
        return 16 * min(prod(stored.shape), BLOCK_ELEMENTS)
    channels, rank, wide = max(stored.shape), settings.rank, 8 * settings.rank if settings.moments == "bfloat16" else 0
    if not in_rows:
        return channels * (6 * rank + wide + 36)
    return max(channels * (4 * rank + 8) + 4 * BLOCK_ROWS * rank, channels * (4 * rank + wide + 36) if wide else 0)


def _loss(text: Mapping[str, Any], step: StepShape, kept: int) -> int:
    """Memory of the loss. `kept`: bytes that layers keep per token. Those of anchors do not exist yet while the
    examples' logits do."""
    vocabulary, hidden, tokens = text["vocab_size"], text["hidden_size"], step.tokens
    told = 60 * LIKELIEST * step.held.tokens
    if vocabulary <= BLOCK_ROWS:
        return int(14 * tokens * vocabulary + told)
    later = min(step.held.tokens * kept, 10 * step.learned.tokens * BLOCK_ROWS)
    block = max(10 * step.learned.tokens * BLOCK_ROWS - later, 10 * step.held.tokens * BLOCK_ROWS)
    return int(block + 6 * tokens * hidden + _kept_logits(text, step) + told)


def _kept_logits(text: Mapping[str, Any], step: StepShape) -> int:
    """Logits kept, of each batch that is short enough."""
    kept = sum(batch.targets for batch in step.batches if 2 * batch.targets <= text["hidden_size"])
    return 2 * kept * int(text["vocab_size"])


def _head(text: Mapping[str, Any], step: StepShape) -> int:
    """Factors of the gradients of a large head, block by block."""
    if text["vocab_size"] <= BLOCK_ROWS:
        return 0
    hidden = text["hidden_size"]
    block = max((4 if 2 * batch.targets <= hidden else 6) * batch.tokens for batch in step.batches) * BLOCK_ROWS
    return int(block + 6 * step.tokens * hidden + _kept_logits(text, step))


def _kv_token(model: ModelShapes) -> int | None:
    """bf16 keys and values of one token in all layers of full attention."""
    text = model.text
    if "num_key_value_heads" not in text:
        told = [
            s.shape[0]
            for n, s in model.tensors.items()
            if of_text(n) and n.endswith(("k_proj.weight", "v_proj.weight"))
        ]
        return 2 * sum(told) or None
    full = sum(kind != "linear_attention" for kind in layer_types(text))
    return int(4 * full * text["num_key_value_heads"] * head_dim(text))


def _kv_sequence(text: Mapping[str, Any]) -> int:
    """float32 state and bf16 window of the convolution, of one sequence in all linear layers."""
    linear = sum(kind == "linear_attention" for kind in layer_types(text))
    if not linear:
        return 0
    heads, width, keys = text["linear_num_value_heads"], text["linear_value_head_dim"], text["linear_key_head_dim"]
    channels = 2 * text["linear_num_key_heads"] * keys + heads * width
    return int(linear * (4 * heads * width * keys + 2 * channels * (text["linear_conv_kernel_dim"] - 1)))
