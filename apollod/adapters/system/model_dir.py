"""Inspects a model directory before its weights are touched, without torch."""

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from apollod.errors import ModelRefused
from apollod.explain import reason
from apollod.store.access import DAEMON


def check_model_dir(path: str | Path) -> None:
    """Raise ModelRefused unless this is a local Hugging Face directory with unquantized safetensors."""
    directory = Path(path)
    if not directory.is_dir():
        raise ModelRefused(
            f"{path} is no model directory: it does not exist", "set [model] path to a local Hugging Face directory"
        )
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelRefused(
            f"{path} is no model directory: it has no readable config.json",
            "set [model] path to a local Hugging Face directory",
        ) from error
    except ValueError as error:
        raise ModelRefused(
            f"{path}/config.json is not JSON: {error}", "restore it from where the model came from"
        ) from error
    if not any(directory.glob("*.safetensors")):
        raise ModelRefused(
            f"{path} has no *.safetensors file",
            "convert it: AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)",
        )
    for part in (config, config.get("text_config") or {}):
        if quantization := part.get("quantization_config") or part.get("compression_config"):
            refuse_quantized(quantization.get("quant_method", "unknown method"))


def leave_address(path: Path, socket: Path) -> None:
    """Write the daemon's socket path beside the weights that it trains (`apollo-checkpoint sync` reads it)."""
    target = path / DAEMON
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        target.parent.mkdir(exist_ok=True)
        temporary.write_text(f"{socket}\n")
        temporary.replace(target)
    except OSError as error:
        raise ModelRefused(
            f"{target} cannot be written: {reason(error)}", "check the owner, mode and disk of the directory"
        ) from error


def files_below(path: Path, without: Collection[str]) -> Iterator[Path]:
    """Relative paths of a directory's files in order, without hidden ones and those with a suffix in `without`."""
    for directory, children, names in os.walk(path):
        children[:] = sorted(child for child in children if not child.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix not in without:
                yield Path(directory, name).relative_to(path)


def refuse_quantized(method: object) -> None:
    """Raise ModelRefused for weights that exist only in a packed form."""
    raise ModelRefused(
        f"the weights are quantized ({method}), they cannot be trained in place", "use the unquantized bf16 model"
    )
