"""Shapes of a model directory's tensors: from the headers of its files, or from its config.json alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from apollod.errors import ModelRefused
from apollod.explain import reason
from apollod.model.shapes import ModelShapes, Stored, known_from_config, shapes_of, taken_for_bf16
from apollod.store.model_files import INDEX, SINGLE, read_files

BUILD_S = 120.0
"""Time limit, in seconds, for importing transformers and building the model without memory."""


def read_shapes(directory: Path) -> ModelShapes:
    """Read shapes from config.json and the headers of the weight files. Without weight files, for an architecture
    unknown here, from the model that transformers builds from config.json, in a process of its own (seconds). Raises
    ModelRefused."""
    stored: dict[str, Stored] = {}
    if any((directory / name).is_file() for name in (INDEX, SINGLE)):
        stored = {t.name: Stored(t.dtype, t.shape, t.bytes) for file in read_files(directory) for t in file.tensors}
    config = _config_of(directory / "config.json")
    return shapes_of(config, stored) if stored or known_from_config(config) else _built(directory, config)


def _built(directory: Path, config: dict[str, Any]) -> ModelShapes:
    """Shapes as the checkpoint would have them, from a model that transformers builds."""
    command = [sys.executable, "-m", "apollod.trainer.config_shapes", str(directory)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
        why = done.stderr.strip().rpartition("\n")[2]
    except subprocess.TimeoutExpired:
        done, why = None, f"transformers has not built it in {BUILD_S:.0f} s"
    if done is None or done.returncode:
        kind = (config.get("text_config") or config).get("model_type", "none")
        raise ModelRefused(
            f"there is no *.safetensors, and the tensors of model_type {kind} are not known from config.json alone: "
            f"{why}",
            "copy the weights into the model directory, or install a version of transformers that knows this model",
        )
    told = json.loads(done.stdout.strip().rpartition("\n")[2])
    return shapes_of(
        told["text"], taken_for_bf16({name: tuple(shape) for name, shape in told["shapes"].items()}), False
    )


def _config_of(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelRefused(
            f"{path} cannot be read ({reason(error)})", "set [model] path to a local Hugging Face directory"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelRefused(f"{path} is not JSON ({error})", "restore it from where the model came from") from error
    if not isinstance(found, dict):
        raise ModelRefused(f"{path} is no JSON object", "restore it from where the model came from")
    return found
