"""Shapes of a model directory's tensors: from the headers of its files, or from its config.json alone."""

import json
from pathlib import Path
from typing import Any

from apollod.errors import ModelRefused
from apollod.explain import reason
from apollod.model.shapes import ModelShapes, Stored, shapes_of
from apollod.store.model_files import INDEX, SINGLE, read_files


def read_shapes(directory: Path) -> ModelShapes:
    """From config.json and the headers of the weight files, if there are any; raises ModelRefused."""
    stored: dict[str, Stored] = {}
    if any((directory / name).is_file() for name in (INDEX, SINGLE)):
        stored = {t.name: Stored(t.dtype, t.shape, t.bytes) for file in read_files(directory) for t in file.tensors}
    return shapes_of(_config_of(directory / "config.json"), stored)


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
