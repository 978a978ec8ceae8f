"""`apollod config check --memory`: what a model and a trainer beside it take, before anything is loaded."""

import json
from pathlib import Path
from typing import Any

from apollod.errors import ModelRefused
from apollod.explain import reason
from apollod.model.memory_table import MemoryTable, memory_table
from apollod.model.shapes import ModelShapes, Stored, shapes_of
from apollod.store.model_files import INDEX, SINGLE, read_files
from apollod.supervisor.config import Config

GB = 1e9


def check(config: Config, device_gb: float | None, as_json: bool) -> int:
    """Print the table; exit code 1 where it does not fit a device of `device_gb` (10^9 bytes), else 0."""
    model = read_shapes(Path(config.model.path).expanduser())
    triton = device_gb is not None and config.trainer.name == "apollo" and config.trainer.kernels != "eager"
    table = memory_table(model, config.optimizer(), config.trainer.accumulate, rows=not triton)
    left = None if device_gb is None else int(device_gb * GB) - table.weights - table.training
    if as_json:
        print(json.dumps(_object(config, model, table, device_gb, left)))
    else:
        print(_text(config, model, table, device_gb, left))
    return 0 if left is None or left > 0 else 1


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


def _object(
    config: Config, model: ModelShapes, table: MemoryTable, device_gb: float | None, left: int | None
) -> dict[str, Any]:
    return {
        "schema_version": 1, "model": config.model.path, "from": "headers" if model.from_files else "config.json",
        "parameters": table.parameters, "trained": table.trained, "max_tokens": config.trainer.max_tokens,
        "device": "cpu" if device_gb is None else "gpu", "weights_bytes": table.weights,
        "state_bytes": table.state_total, "state": dict(table.state),
        "gradient_bytes": table.gradients, "update_bytes": table.update, "activation_bytes": table.activations,
        "layer_bytes": table.layer, "loss_bytes": table.loss, "training_bytes": table.training,
        "kv_bytes_per_token": table.kv_token,
        "device_bytes": None if device_gb is None else int(device_gb * GB), "kv_left_bytes": left,
        "fits": None if left is None else left > 0, "host_checkpoint_bytes": table.checkpoint,
        "host_undo_bytes": config.checkpoint.undo_bytes,
    }  # fmt: skip


def _text(config: Config, model: ModelShapes, table: MemoryTable, device_gb: float | None, left: int | None) -> str:
    t = config.trainer
    rows: list[tuple[str, int, str]] = [
        ("weights", table.weights, f"one copy for engine and trainer, {table.parameters / GB:.3f} billion parameters"),
        *(("optimizer state", count, kind) for kind, count in sorted(table.state.items(), key=lambda item: -item[1])),
        (
            "gradients",
            table.gradients,
            "largest at once" if t.accumulate == 1 else f"all of them, accumulate = {t.accumulate}",
        ),
        ("update", table.update, "working memory of the optimizer, for the largest matrix"),
        ("activations", table.activations, f"kept for the backward pass, max_tokens = {t.max_tokens}"),
        *(
            [("or a layer", table.layer, "computed again in the backward pass, instead of the loss")]
            if table.layer
            else []
        ),
        ("loss", table.loss, "logits and what is made of them, every token learned"),
        ("training", table.training, "all but the weights, at its highest moment"),
    ]
    if left is not None:
        tokens = f", or {left // table.kv_token:,} tokens" if table.kv_token and left > 0 else ""
        rows.append(
            ("left", left, f"of {device_gb:g} GB, for KV cache{tokens}; CUDA contexts and vLLM's workspace go off")
        )
    where = "of the host" if device_gb is not None else "besides"
    host = [
        (
            "checkpoint",
            table.checkpoint,
            f"{where}, while one is written; where that is not free, steps wait for the disk instead",
        ),
        ("undo", config.checkpoint.undo_bytes, f"{where}, at most: the last steps, for `ctl rollback`"),
    ]
    source = "the headers of its files" if model.from_files else "config.json alone, taken for bf16"
    lines = [f"{config.model.path}, from {source}; GB = 10^9 bytes", ""]
    lines += [f"{what:<16}{count / GB:>10.3f} GB  {note}" for what, count, note in rows]
    lines += ["", *(f"{what:<16}{count / GB:>10.3f} GB  {note}" for what, count, note in host)]
    if left is not None and left <= 0:
        lines += ["", f"it does not fit: {_advice(config, table)}"]
    return "\n".join(lines)


def _advice(config: Config, table: MemoryTable) -> str:
    """What to change, the largest gain first."""
    t = config.trainer
    ways = [
        (table.activations, not t.gradient_checkpointing, "set [trainer] gradient_checkpointing = true"),
        (table.gradients, t.accumulate > 1, "set [trainer] accumulate = 1"),
        (table.state_total, t.rounding == "master", 'set [trainer] rounding = "stochastic"'),
        (table.state_total, t.name in ("adamw", "adamw8bit"), 'set [trainer] optimizer = "apollo"'),
        (table.state_total // 2, t.name == "apollo" and t.moments == "float32", 'set [trainer] moments = "bfloat16"'),
        (table.activations // 2, True, f"lower [trainer] max_tokens = {t.max_tokens}"),
        (table.training // 4, not t.layers, 'train fewer layers, such as [trainer] layers = "20-31"'),
    ]
    best = sorted((way for way in ways if way[1]), key=lambda way: -way[0])
    return "; or ".join(text for _, _, text in best[:3])
