"""Estimates the activations that decoder layers keep for the backward pass of a step with given batches, for
transformers' own PyTorch modules with PyTorch's scaled dot product attention. Pure.

T: tokens of a step; h, i, q, k: bytes count elements of hidden size, MLP, query and key-value widths a token. Exact
for these (tests/unit/trainer/test_kept.py counts on CPU):

    llama and alike   T (16 h + 8 i + 4 q + 4 k + 4 heads + 8)
    qwen3 and alike   T (16 h + 8 i + 10 q + 10 k + 8 heads + 4 kv heads + 8)
    qwen3.5 full      T (20 h + 8 i + 18 q + 12 k + 8 heads + 4 kv heads + 8) + 8 h + 8 width
    qwen3.5 linear    T (20 h + 8 i + 8 + 4 c + n (26 d + 22)) + P n (36 d + 1296 + d^2 / 16 + 1/16)
                      + 8 h + 6 c + 4096 + 8 n
                      c channels of the convolution, n value heads of width d, P: T with each sequence rounded
                      up to a multiple of 64
        with a mask, if sequences are padded or longer than a window, keys and values are kept once per query
        head: 4 (q - k) a token more, and of each sequence 2 bytes for the square of its length

In layers with experts, i is the width of those that a token passes and of shared ones, and there is at most
T (e (4 h + 32) + 4 h + 20 experts) more, e of them a token, besides 4 experts and 1 KiB: their input sorted by expert
and their output, and the router's scores.

For any other decoder whose layers are made of matrices, norms and experts there is a bound, from the shapes of a layer
alone, which the tested ones do not exceed (they take 0.3 to 0.95 of it): each norm takes 10 of its width
and 8 a head, and there are at least two; each matrix takes, of its side that is not h, 4 in attention and 3 elsewhere
(an activation made of parts, such as "gelu_new", not more); experts as above; and 4 heads, 64 h in all, and of
each sequence 2 bytes for the square of its length, if attention has a mask.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apollod.core.facts.holding import OF_PRACTICE
from apollod.errors import ModelRefused
from apollod.model.decoder import (
    Shape,
    across,
    experts_taken,
    in_layers,
    is_attention,
    is_expert,
    is_stack,
    part_of_expert,
)  # fmt: skip
from apollod.model.shapes import ModelShapes, head_dim, layer_types

ROWS = OF_PRACTICE
"""most sequences of a batch: wordings that one step practises, and anchors that it holds"""

CHUNK = 64
"""tokens in a chunk of a gated delta net (transformers, torch_chunk_gated_delta_rule)"""

BY_HAND = "divide the memory by hand: set [engine] kv_cache_mib, and training has what that leaves"

_LLAMA = ("llama", "mistral", "ministral", "qwen2", "smollm3", "granite", "seed_oss", "mixtral", "qwen2_moe")
_QWEN3 = ("qwen3", "qwen3_moe")
_QWEN3_5 = ("qwen3_5", "qwen3_5_moe")
_FAMILIES = {kind: family[0] for family in (_LLAMA, _QWEN3, _QWEN3_5) for kind in family}


@dataclass(frozen=True)
class Batch:
    """Sequences padded to the longest of them."""

    rows: int = 0
    length: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, padding included."""
        return self.rows * self.length

    @property
    def targets(self) -> int:
        """Most learned tokens: all but the first one of each sequence."""
        return self.rows * max(0, self.length - 1)

    def in_chunks(self, size: int) -> int:
        """Like `tokens`, with each sequence padded to whole chunks."""
        return self.rows * (-(-self.length // size) * size)


@dataclass(frozen=True)
class StepShape:
    """`learned`: examples; `held`: anchors. Each token counts as learned, and as having a teacher."""

    learned: Batch
    held: Batch = Batch()

    @property
    def tokens(self) -> int:
        return self.learned.tokens + self.held.tokens

    @property
    def batches(self) -> tuple[Batch, Batch]:
        return self.learned, self.held

    def in_chunks(self, size: int) -> int:
        """See `Batch`."""
        return sum(batch.in_chunks(size) for batch in self.batches)


def kept_bytes(model: ModelShapes) -> Callable[[StepShape], list[int]]:
    """A function from a step to the bytes that each decoder layer keeps. Raises ModelRefused for unknown layers;
    KeyError, ValueError and the like for an invalid config."""
    text, layers = model.text, in_layers({name: stored.shape for name, stored in model.tensors.items()})
    experts = [_experts(text, layer) for layer in layers]
    if (family := _family(text)) is None:
        tokens = [_token(text, layer) for layer in layers]
        return lambda step: [
            step.tokens * token + 64 * text["hidden_size"] + _masks(step.batches) + of_experts(step.tokens)
            for token, of_experts in zip(tokens, experts, strict=True)
        ]
    return lambda step: [
        (_linear(text, step) if kind == "linear_attention" else _full(text, step, family, kind))
        + of_experts(step.tokens)
        for kind, of_experts in zip(layer_types(text), experts, strict=True)
    ]


def is_bound(model: ModelShapes) -> bool:
    """True if the estimate is an upper bound: for an unknown family, or with experts."""
    return _family(model.text) is None or any(map(is_expert, model.tensors))


def _family(text: Mapping[str, Any]) -> str | None:
    """The name of the formula; None if config.json lacks its parameters."""
    told = {"num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size"} <= text.keys()
    return _FAMILIES.get(str(text.get("model_type", "none")).removesuffix("_text")) if told else None


def _full(text: Mapping[str, Any], step: StepShape, family: str, kind: str) -> int:
    hidden, inner, width = text["hidden_size"], text["intermediate_size"], head_dim(text)
    heads, groups = text["num_attention_heads"], text["num_key_value_heads"]
    norm, query, key, head, group, fixed = {
        "llama": (16, 4, 4, 4, 0, 0),
        "qwen3": (16, 10, 10, 8, 4, 0),
        "qwen3_5": (20, 18, 12, 8, 4, 8 * (hidden + width)),
    }[family]
    token = norm * hidden + 8 * inner + heads * (query * width + head) + groups * (key * width + group) + 8
    masked = [batch for batch in step.batches if _has_mask(text, batch, kind)]
    repeated = 4 * (heads - groups) * width * sum(batch.tokens for batch in masked)
    return int(step.tokens * token + fixed + repeated + _masks(masked))


def _has_mask(text: Mapping[str, Any], batch: Batch, kind: str) -> bool:
    """True if sequences are padded to one length, or one is longer than a layer's window."""
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    slides = kind == "sliding_attention" or not text.get("layer_types")
    return batch.rows > 1 or bool(window and slides and batch.length > window)


def _linear(text: Mapping[str, Any], step: StepShape) -> int:
    hidden, heads, width = text["hidden_size"], text["linear_num_value_heads"], text["linear_value_head_dim"]
    channels = 2 * text["linear_num_key_heads"] * text["linear_key_head_dim"] + heads * width
    padded = step.in_chunks(CHUNK)
    token = 20 * hidden + 8 * text["intermediate_size"] + 8 + 4 * channels + heads * (26 * width + 22)
    chunks = padded * heads * (36 * width + 1296) + padded * heads * (width**2 + 1) // 16
    return int(step.tokens * token + chunks + 8 * hidden + 6 * channels + 4096 + 8 * heads)


def _experts(text: Mapping[str, Any], layer: Mapping[str, Shape]) -> Callable[[int], int]:
    """A function from a number of tokens to the bytes that choosing experts and sorting tokens by them adds."""
    if not (taken := experts_taken(text, layer)):
        return lambda _tokens: 0
    hidden, there = text["hidden_size"], experts_taken({}, layer)
    token = taken * (4 * hidden + 32) + 4 * hidden + 20 * there
    return lambda tokens: int(tokens * token + 4 * there + 1024)


def _token(text: Mapping[str, Any], layer: Mapping[str, Shape]) -> int:
    """The bound for one token."""
    hidden = text["hidden_size"]
    _check(text, layer, hidden)
    heads = int(text.get("num_attention_heads") or hidden // 32)
    norms, matrices = list[int](), 0
    for name, shape in layer.items():
        if len(shape) == 1 and not name.endswith("bias"):
            norms.append(shape[0] * (heads if shape[0] < hidden and "norm" in name else 1))
        elif len(shape) == 2 and not is_expert(name):
            matrices += (4 if is_attention(name) else 3) * across(shape, hidden)
    parts = {part: shape for name, shape in layer.items() if (part := part_of_expert(name))}
    matrices += 3 * experts_taken(text, layer) * sum(across(shape, hidden) for shape in parts.values())
    norms += [hidden] * (2 - sum(width >= hidden for width in norms))
    return int(matrices + sum(10 * width for width in norms) + 8 * heads * len(norms) + 4 * heads)


def _masks(batches: Iterable[Batch]) -> int:
    return 2 * sum(batch.rows * batch.length**2 for batch in batches)


def _check(text: Mapping[str, Any], layer: Mapping[str, Shape], hidden: int) -> None:
    """Raise ModelRefused for tensors other than matrices and norms, such as a convolution or a recurrence, and for
    experts that are stored transposed, whose modules compute all of them."""
    for name, shape in layer.items():
        turned = is_stack(name, shape) and hidden not in (shape[1:] if "down" in name else shape[2:])
        if len(shape) > 2 and (turned or not is_stack(name, shape)):
            raise ModelRefused(
                f"what a layer of model_type {text.get('model_type')} keeps for the backward pass is not known: "
                f"{name} {list(shape)}",
                BY_HAND,
            )


# --- steps that may take the most memory ------------------------------------------------------------------------------


def largest_steps(max_tokens: int, bound: int, holds: bool, width: int) -> Iterator[StepShape]:
    """Shapes, one of which has the highest memory of all that are one example of at most `max_tokens`, or have at most
    `bound` tokens, with their anchors if steps hold any.

    The memory of a step grows with the tokens of each batch, with two exceptions: logits are kept for at most width / 2
    learned tokens (trainer/objectives/loss.py), and a gated delta net pads each sequence to whole chunks. So a shorter
    batch may need more than a longer one.
    """
    half = width // 2
    for length in {max_tokens, min(max_tokens, half + 1)}:
        yield StepShape(Batch(1, length))
    most = min(max_tokens, bound)
    for tokens in {most, min(most, bound // 2), min(most, ROWS)} if holds else {most}:
        for learned in _sizes(tokens, half):
            left = bound - learned.tokens if holds else 0
            for held in _sizes(left, half) if left > 0 else (Batch(),):
                yield StepShape(learned, held)


def _sizes(most: int, half: int) -> Iterator[Batch]:
    """Yield batches of at least `most` tokens, in one sequence and in as many as possible; among those of at most
    `most` the one with the most chunks; and one with `half` learned tokens, if those are fewer."""
    rows = min(ROWS, most)
    yield Batch(rows, -(-most // rows))
    yield Batch(1, most)
    yield max(_just_over(most), key=lambda batch: batch.in_chunks(CHUNK))
    rows = next(rows for rows in range(ROWS, 0, -1) if half % rows == 0)
    if (kept := Batch(rows, half // rows + 1)).tokens < most:
        yield kept


def _just_over(most: int) -> Iterator[Batch]:
    """Yield batches of at most `most` tokens, each sequence one token longer than whole chunks."""
    for length in range(1, most + 1, CHUNK):
        yield Batch(min(ROWS, most // length), length)
