"""What can be said of a model directory before an engine is started on it, without torch."""

import json
from pathlib import Path

from apollod.errors import ModelRefused


def check_model_dir(path: str) -> None:
    """Raise ModelRefused for a directory that is missing, is no Hugging Face model, has no safetensors, or is quantized."""
    directory = Path(path)
    if not directory.is_dir():
        raise ModelRefused(f"the model directory {path} does not exist", "set [model] path to a local Hugging Face directory")
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelRefused(f"{path} has no readable config.json", "it has to be a Hugging Face model directory") from error
    except ValueError as error:
        raise ModelRefused(f"{path}/config.json is not JSON: {error}", "restore it from where the model came from") from error
    if not any(directory.glob("*.safetensors")):
        raise ModelRefused(
            f"{path} has no *.safetensors", "convert it: AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)"
        )
    quantization = config.get("quantization_config") or config.get("compression_config")
    if quantization:
        method = quantization.get("quant_method", "quantized") if isinstance(quantization, dict) else "quantized"
        raise ModelRefused(
            f"{path} is quantized ({method}); its weights cannot be trained in place", "use the bf16 model"
        )
