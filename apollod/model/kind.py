"""Recognises the kind of a model, on which the rounding difference between engine and trainer depends, from
config.json. Pure."""

from collections.abc import Mapping
from typing import Any

from apollod.core.alignment.bounds import ModelKind
from apollod.model.shapes import layer_types

_RECURRENT = ("linear", "mamba", "recurrent", "conv", "ssm")
"""words in the name of a recurrent kind of layer (`layer_types`, `layers_block_type`) or model"""


def kind_of(config: Mapping[str, Any]) -> ModelKind:
    """Hybrid if any layer is known to be recurrent, else dense, also if config.json does not say."""
    text = config.get("text_config") or config
    named = [*(text.get("layers_block_type") or ()), str(text.get("model_type", ""))]
    if isinstance(text.get("num_hidden_layers"), int):
        named += layer_types(text)
    return "hybrid" if any(word in str(name) for name in named for word in _RECURRENT) else "dense"
