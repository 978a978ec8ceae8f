"""Models and settings that apollod refuses to serve, before a weight can go wrong.

`check_arguments` sees the command line and the model directory, before vLLM starts anything; `check_config` sees vLLM's
resolved configuration inside the worker and is decisive.
"""

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from apollod.adapters.system.model_dir import check_model_dir, refuse_quantized
from apollod.errors import ModelRefused

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""torch reads both; the second is the older name"""
PLAIN_EXPERTS = ("TRITON", "BATCHED_TRITON")
"""vLLM's unquantized MoE backends (`UnquantizedMoeBackend`) that multiply with the parameter itself."""

UNSHAREABLE = {"expandable_segments:true": "expandable segments", "backend:cudamallocasync": "CUDA's own pools"}


def check_arguments(args: Namespace) -> None:
    """Raise ModelRefused for problems visible in the arguments of vLLM's API server and in `config.json`.

    Otherwise a refusal would take a whole engine start, and some would be errors of vLLM without a remedy.
    """
    check_model_dir(args.model)
    _check_parallel(args.tensor_parallel_size * args.pipeline_parallel_size, args.data_parallel_size)
    if args.quantization is not None:
        refuse_quantized(args.quantization)
    if args.enable_lora:
        _refuse_lora()
    if args.enable_sleep_mode:
        _refuse_sleep()


def check_config(vllm_config: Any, model_config: Any) -> None:
    """Raise ModelRefused for a vLLM configuration under which products would not use the shared memory.

    Source: vllm/config (VllmConfig, ModelConfig) of 0.26 to 0.32.
    """
    from vllm.platforms import current_platform

    check_model_dir(model_config.model)
    parallel = vllm_config.parallel_config
    _check_parallel(parallel.world_size, parallel.data_parallel_size)
    if model_config.quantization is not None or vllm_config.quant_config is not None:
        refuse_quantized(model_config.quantization)
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
    if current_platform.is_cuda():
        check_allocator(os.environ)


def choose_backends(args: Namespace) -> None:
    """If the choice is vLLM's, select a backend for mixture experts that uses them as they are stored.

    On Blackwell FlashInfer comes first and packs them (fused_moe/oracle/unquantized.py of 0.32). An engine without the
    option is left alone: `check_experts` examines its choice.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cuda() and getattr(args, "moe_backend", "") == "auto":
        args.moe_backend = "triton"


def check_experts(model: Any) -> None:
    """Raise ModelRefused, before any weight is loaded, if experts would be packed after loading: swapped halves and
    shuffled blocks do not match a trainer's views, in one case at the very same address."""
    for name, module in model.named_modules():
        backend = getattr(getattr(module, "quant_method", None), "unquantized_backend", None)
        if backend is not None and backend.name not in PLAIN_EXPERTS:
            raise ModelRefused(
                f"vLLM packs the experts of {name} for {backend.value}: what is learned would not be what is computed",
                'set [engine] args = ["--moe-backend", "triton"]',
            )


def check_allocator(environment: Mapping[str, str]) -> None:
    """Raise ModelRefused for settings of torch's allocator that yield device memory without a CUDA IPC handle."""
    for name in ALLOCATOR_VARIABLES:
        settings = environment.get(name, "").lower().replace(" ", "")
        for setting, what in UNSHAREABLE.items():
            if setting in settings:
                raise ModelRefused(
                    f"{name} = {environment[name]!r}: memory of {what} cannot be shared by CUDA IPC", f"unset {name}"
                )


def _check_parallel(world_size: int, data_parallel_size: int) -> None:
    if world_size * data_parallel_size > 1:
        raise ModelRefused(
            f"the model would be split over {world_size * data_parallel_size} workers, sharing needs one",
            "remove the parallel options of vLLM (--tensor-parallel-size and the like)",
        )


def _refuse_lora() -> None:
    raise ModelRefused("LoRA adapters on shared weights have not been verified", "remove --enable-lora")


def _refuse_sleep() -> None:
    raise ModelRefused("sleep mode takes the weights' memory away from the trainer", "remove --enable-sleep-mode")
