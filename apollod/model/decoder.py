"""A model's decoder derived from its tensors: ends, layers, experts. Many config.json files contain only the
differences from the defaults of their class; tensors supply the rest. Also parses selections of decoder layers such as
"0-3,20-31". Pure."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

Shape = tuple[int, ...]

_OTHER_PARTS = re.compile(r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector|audio_tower|mtp)\.")
_EMBEDDINGS = re.compile(r"(^|\.)(embed_tokens|wte|embed_in)\.weight$")
_HEADS = re.compile(r"(^|\.)(lm_head|embed_out)\.weight$")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_EXPERT = re.compile(r"(?:^|\.)experts\.(?:(\d+)\.)?(\w+?)(?:\.weight)?$")
_ATTENTION = re.compile(r"att")
_RANGES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")
_TAKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
"""keys of config.json for the number of experts per token"""


@cache
def of_text(name: str) -> bool:
    """True if it belongs to the text model. Other parts of a checkpoint may be served, but are not trained."""
    return not _OTHER_PARTS.search(name)


@cache
def is_embedding(name: str) -> bool:
    return _EMBEDDINGS.search(name) is not None


@cache
def is_head(name: str) -> bool:
    return _HEADS.search(name) is not None


@cache
def layer_of(name: str) -> int | None:
    """Number of the decoder layer of a tensor; None for others."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


@cache
def is_attention(name: str) -> bool:
    return _ATTENTION.search(name) is not None


@cache
def is_expert(name: str) -> bool:
    """True for a tensor of an expert, or of all experts, that a router chooses from."""
    return _EXPERT.search(name) is not None


@cache
def part_of_expert(name: str) -> str:
    """The name of an expert's tensor within the expert; empty for other tensors."""
    found = _EXPERT.search(name)
    return found[2] if found else ""


def is_stack(name: str, shape: Shape) -> bool:
    """True if all experts of a layer are in this one tensor [experts, out, in]. To an optimizer each is a matrix."""
    return len(shape) == 3 and is_expert(name)


def expert_name(name: str, number: int) -> str:
    """The optimizer's name for one matrix of a stack: the name it would have if stored by itself."""
    before, _, part = name.rpartition("experts.")
    return f"{before}experts.{number}.{part}"


@cache
def together(name: str) -> str:
    """A name shared by tensors whose gradients come at once: experts of a layer, which transformers multiplies with as
    one tensor, the two matrices before an activation in one and that after it in another; else the tensor's own."""
    found = _EXPERT.search(name)
    return f"{name[: found.start()]}.experts {found[2] in ('down_proj', 'w2')}" if found else name


def in_layers(shapes: Mapping[str, Shape]) -> list[dict[str, Shape]]:
    """Tensors of each decoder layer of the text model."""
    found: dict[int, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        if of_text(name) and (number := layer_of(name)) is not None:
            found.setdefault(number, {})[name] = shape
    return [found[number] for number in sorted(found)]


def across(shape: Shape, hidden: int) -> int:
    """Width of a matrix's other side, or of both if neither is `hidden`; for a stack, of one of its matrices."""
    sides = list(shape[-2:])
    if hidden in sides:
        sides.remove(hidden)
    return sum(sides)


def experts_taken(text: Mapping[str, Any], layer: Mapping[str, Shape]) -> int:
    """Most experts that a token passes in this layer: all of them if config.json does not say; 0 without experts."""
    stacked = [shape[0] for name, shape in layer.items() if is_stack(name, shape)]
    single = {found[1] for name in layer if (found := _EXPERT.search(name)) and found[1]}
    there = max([len(single), *stacked])
    given = next((text[key] for key in _TAKEN if text.get(key)), there)
    return min(there, int(given))


def completed(text: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """`text` completed from the tensors: missing sizes, and for a mixture of experts as `intermediate_size` the width
    that one token passes."""
    embedding = next((shape for name, shape in shapes.items() if of_text(name) and is_embedding(name)), None)
    found: dict[str, Any] = (
        {} if embedding is None else dict(zip(("vocab_size", "hidden_size"), embedding, strict=True))
    )
    layers = in_layers(shapes)
    if layers:
        found["num_hidden_layers"] = len(layers)
    whole = {**found, **text}
    if not layers or not isinstance(hidden := whole.get("hidden_size"), int):
        return whole
    widths = [_inner(whole, layer, hidden) for layer in layers]
    if any(is_expert(name) for layer in layers for name in layer):
        whole["intermediate_size"] = max(widths)
    else:
        whole.setdefault("intermediate_size", max(widths))
    return whole


def _inner(text: Mapping[str, Any], layer: Mapping[str, Shape], hidden: int) -> int:
    """Inner width of a layer's MLP, of shared and chosen experts together."""
    matrices = {name: shape for name, shape in layer.items() if len(shape) >= 2 and not is_attention(name)}
    single = _narrowest(across(s, hidden) for n, s in matrices.items() if not is_expert(n) and "down" in n)
    if not single:  # the model names it differently
        single = max((across(s, hidden) for n, s in matrices.items() if not is_expert(n)), default=0)
    of_expert = _narrowest(across(s, hidden) for n, s in matrices.items() if is_expert(n))
    return single + experts_taken(text, layer) * of_expert


def _narrowest(widths: Iterable[int]) -> int:
    return min(widths, default=0)


# --- selections of layers ---------------------------------------------------------------------------------------------


def parse_layers(text: str) -> frozenset[int]:
    """Indices, from 0, both ends of a range included; white space does not count. Raises ValueError with the right
    form."""
    compact = "".join(text.split())
    if not compact:
        return frozenset()
    if not _RANGES.fullmatch(compact):
        raise ValueError(f'layers = "{text}" names no layers; write indices and ranges, such as "20-31" or "0-3,20-31"')
    named: set[int] = set()
    for part in compact.split(","):
        first, _, last = part.partition("-")
        if int(last or first) < int(first):
            raise ValueError(f'layers = "{text}" has a range that ends before it begins: {part}')
        named.update(range(int(first), int(last or first) + 1))
    return frozenset(named)


def format_layers(layers: frozenset[int]) -> str:
    """The shortest text that `parse_layers` turns into these."""
    parts: list[list[int]] = []
    for layer in sorted(layers):
        if parts and layer == parts[-1][1] + 1:
            parts[-1][1] = layer
        else:
            parts.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
