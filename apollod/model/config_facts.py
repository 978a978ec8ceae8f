"""Facts told by the text files of a model directory: the kind of the model, its context length, its chat template."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apollod.core.facts.alignment import ModelKind
from apollod.model.shapes import layer_types

_RECURRENT = ("linear", "mamba", "recurrent", "conv", "ssm")
"""words in the name of a recurrent kind of layer (`layer_types`, `layers_block_type`) or model"""
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_UNSCALED = ("default", "su", "longrope", "llama3", "mrope")
"""kinds of rotary scaling whose factor is already included in `max_position_embeddings`"""


def kind_of(config: Mapping[str, Any]) -> ModelKind:
    """Hybrid if any layer is known to be recurrent, else dense, also if config.json does not say. The rounding
    difference between engine and trainer depends on it."""
    text = config.get("text_config") or config
    named = [*(text.get("layers_block_type") or ()), str(text.get("model_type", ""))]
    if isinstance(text.get("num_hidden_layers"), int):
        named += layer_types(text)
    return "hybrid" if any(word in str(name) for name in named for word in _RECURRENT) else "dense"


def context_length(config: Mapping[str, Any]) -> int | None:
    """Number of positions of the model, rotary scaling included; None if its config.json does not say."""
    text = config.get("text_config") or config
    found = [length for name in _LENGTHS if isinstance(length := text.get(name), int) and length > 0]
    if not found:
        return None
    scaling = text.get("rope_scaling") or text.get("rope_parameters") or {}
    factor = scaling.get("factor", 1) if isinstance(scaling, dict) else 1
    kind = scaling.get("rope_type", scaling.get("type", "default")) if isinstance(scaling, dict) else "default"
    if kind in _UNSCALED or not isinstance(factor, int | float):
        factor = 1
    return int(min(found) * max(1, factor))


def template_text(model_dir: Path) -> str:
    """The template from `chat_template.jinja`, else from `tokenizer_config.json`; empty if neither has one.
    Blocking."""
    try:
        if (own := model_dir / "chat_template.jinja").exists():
            return own.read_text(encoding="utf-8")
        text = (model_dir / "tokenizer_config.json").read_text(encoding="utf-8")
        return str(json.loads(text).get("chat_template") or "")
    except (OSError, ValueError, AttributeError):
        return ""
