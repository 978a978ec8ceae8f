"""What apollod will not serve, said before it costs a wrong weight.

`check_arguments` sees the command line and the model directory, before vLLM starts anything; `check_config` sees vLLM's
resolved configuration inside the worker and is the one that counts.
"""

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from apollod.errors import ModelRefused


def check_arguments(args: Namespace) -> None:
    """Raise ModelRefused for what the arguments of vLLM's API server and `config.json` already show.

    Without this a refusal takes a whole engine start, and some come as an error of vLLM that does not say what to do.
    """
    check_model_dir(Path(args.model))
    _check_parallel(args.tensor_parallel_size * args.pipeline_parallel_size, args.data_parallel_size)
    if args.quantization is not None:
        _refuse_quantized(args.quantization)
    if args.enable_lora:
        _refuse_lora()
    if args.enable_sleep_mode:
        _refuse_sleep()


def check_model_dir(path: Path) -> None:
    """Raise ModelRefused unless this is a local Hugging Face directory with unquantized safetensors."""
    config = path / "config.json"
    if not config.is_file():
        raise ModelRefused(f"{path} is no model directory: it has no config.json", "give [model] path a local Hugging Face directory")
    if not any(path.glob("*.safetensors")):
        raise ModelRefused(f"{path} has no *.safetensors file", "convert it: AutoModelForCausalLM...save_pretrained(DIR)")
    try:
        settings: dict[str, Any] = json.loads(config.read_bytes())
    except ValueError as error:
        raise ModelRefused(f"{config} is not JSON ({error})", "restore it from where the model came from") from error
    for part in (settings, settings.get("text_config") or {}):
        if quantized := part.get("quantization_config") or part.get("compression_config"):
            _refuse_quantized(quantized.get("quant_method", "unknown method"))


def check_config(vllm_config: Any, model_config: Any) -> None:
    """Raise ModelRefused for a vLLM configuration under which the shared memory would not be what is multiplied.

    Source: vllm/config (VllmConfig, ModelConfig) of 0.26 to 0.32.
    """
    from vllm.platforms import current_platform

    check_model_dir(Path(model_config.model))
    parallel = vllm_config.parallel_config
    _check_parallel(parallel.world_size, parallel.data_parallel_size)
    if model_config.quantization is not None or vllm_config.quant_config is not None:
        _refuse_quantized(model_config.quantization)
    if vllm_config.lora_config is not None:
        _refuse_lora()
    if model_config.enable_sleep_mode or model_config.enable_cumem_allocator:
        _refuse_sleep()
    if parallel.enable_eplb:
        raise ModelRefused("expert load balancing moves experts in memory", "remove --enable-eplb")
    offload = vllm_config.offload_config
    if offload.uva.cpu_offload_gb > 0 or offload.prefetch.offload_group_size > 0:
        raise ModelRefused("offloaded weights move between host and device", "remove the offload options of vLLM")
    if current_platform.is_cpu() and model_config.is_moe:
        raise ModelRefused("on CPU vLLM packs the experts of a mixture-of-experts model", "use a dense model, or a GPU")
    settings = os.environ.get("PYTORCH_ALLOC_CONF", "") + os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if current_platform.is_cuda() and "expandable_segments:True" in settings:
        raise ModelRefused("memory of expandable segments cannot be shared by CUDA IPC", "unset expandable_segments in PYTORCH_ALLOC_CONF")


def _check_parallel(world_size: int, data_parallel_size: int) -> None:
    if world_size * data_parallel_size > 1:
        raise ModelRefused(
            f"the model would be split over {world_size * data_parallel_size} workers, sharing needs one",
            "remove the parallel options of vLLM (--tensor-parallel-size and the like)",
        )


def _refuse_quantized(method: object) -> None:
    raise ModelRefused(f"the weights are quantized ({method}), they cannot be trained in place", "serve the unquantized model")


def _refuse_lora() -> None:
    raise ModelRefused("LoRA adapters on shared weights have not been verified", "remove --enable-lora")


def _refuse_sleep() -> None:
    raise ModelRefused("sleep mode takes the weights' memory away from the trainer", "remove --enable-sleep-mode")
