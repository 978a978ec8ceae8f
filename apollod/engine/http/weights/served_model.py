"""Facts of the served model that both dialects tell: a few fields, never the environment or the arguments."""

from argparse import Namespace
from typing import Any, NamedTuple


class ServedModel(NamedTuple):
    """Facts of the engine. `cuda`: its weights are on a GPU."""

    path: str = ""
    name: str = ""
    tokenizer: str = ""
    dtype: str = ""
    max_model_len: int | None = None
    logprobs_mode: str = "raw_logprobs"
    cuda: bool = False


def served_model(engine: Any, args: Namespace) -> ServedModel:
    """The facts, from vLLM's EngineClient and its arguments. Source: vllm/engine/protocol.py, 0.26 to 0.32."""
    from vllm.platforms import current_platform

    config = getattr(engine, "model_config", None)

    def fact(name: str, default: Any = None) -> Any:
        return getattr(config, name, None) or getattr(args, name, None) or default

    path, names = str(fact("model", "")), fact("served_model_name", "")
    return ServedModel(
        path, str(names[0] if isinstance(names, list) else names) or path, str(fact("tokenizer", path)),
        str(fact("dtype", "")), fact("max_model_len"), str(fact("logprobs_mode", "raw_logprobs")),
        bool(current_platform.is_cuda_alike()),
    )  # fmt: skip


def server_info(model: ServedModel, label: str, active: int) -> dict[str, Any]:
    """The answer of GET /server_info: vLLM's fields that TRL reads, and SGLang's that slime and its router read."""
    told = {
        "model": model.path, "served_model_name": model.name, "dtype": model.dtype,
        "max_model_len": model.max_model_len, "logprobs_mode": model.logprobs_mode,
    }  # fmt: skip
    transfer = {"backend": "nccl"}
    return {
        "vllm_config": {
            "model_config": told, "weight_transfer_config": transfer,
            "parallel_config": {"world_size": 1, "tensor_parallel_size": 1, "pipeline_parallel_size": 1},
        },
        "vllm_env": {}, "system_env": {}, "model_config": told, "weight_transfer_config": transfer,
        "logprobs_mode": model.logprobs_mode, "model_path": model.path, "tokenizer_path": model.tokenizer,
        "served_model_name": model.name, "dtype": model.dtype, "context_length": model.max_model_len,
        "tp_size": 1, "pp_size": 1, "dp_size": 1, "ep_size": 1, "nnodes": 1, "enable_memory_saver": False,
        "skip_tokenizer_init": False, "disaggregation_mode": "null", "load_balance_method": "round_robin",
        "weight_version": label, "internal_states": [{"weight_version": label, "num_running_reqs": active}],
    }  # fmt: skip


def model_info(model: ServedModel, label: str) -> dict[str, Any]:
    """The answer of GET /model_info. `model_path` is a directory of this machine, which a router reads."""
    return {
        "model_path": model.path, "tokenizer_path": model.tokenizer, "served_model_name": model.name,
        "is_generation": True, "preferred_sampling_params": None, "weight_version": label,
        "has_image_understanding": False, "has_audio_understanding": False,
    }  # fmt: skip
