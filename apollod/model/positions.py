"""Reads the model's context length from config.json, and the one requested of the engine. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_UNSCALED = ("default", "su", "longrope", "llama3", "mrope")
"""kinds of rotary scaling whose factor is already included in `max_position_embeddings`"""
_OVERRIDES = ("hf-overrides", "rope-scaling")
_MULTIPLES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""suffixes as in vLLM (utils/argparse_utils.py, `human_readable_int`)"""


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


def asked_length(args: Sequence[str]) -> int | None:
    """`--max-model-len` among the arguments of the engine; None if it is missing, left to vLLM, or if another argument
    changes the model's own length."""
    asked: int | None = None
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        name = name.removeprefix("--").replace("_", "-")
        if name in _OVERRIDES:
            return None
        if name == "max-model-len":
            asked = human_number(value if equals else (args[place + 1] if place + 1 < len(args) else ""))
    return asked


def human_number(text: str) -> int | None:
    """Parse "8192", "32k" or "1.5G" like vLLM; None for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", text)
    return int(float(found[1]) * _MULTIPLES.get(found[2], 1)) if found else None
