"""What the engine will not serve, before and inside vLLM."""

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from apollod.engine.refusals import check_arguments, check_config, check_experts, choose_backends
from apollod.errors import ModelRefused


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    return tmp_path


def arguments(path: Path, **changed: Any) -> Namespace:
    plain = {
        "model": str(path), "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1,
        "quantization": None, "enable_lora": False, "enable_sleep_mode": False,
    }  # fmt: skip
    return Namespace(**(plain | changed))


def config(model: Path, changed: dict[str, Any]) -> tuple[SimpleNamespace, SimpleNamespace]:
    """vLLM's configuration as far as it is looked at; `changed` by dotted name."""
    model_config = SimpleNamespace(
        model=str(model), quantization=None, enable_sleep_mode=False, enable_cumem_allocator=False, is_moe=False
    )
    vllm_config = SimpleNamespace(
        model_config=model_config,
        parallel_config=SimpleNamespace(world_size=1, data_parallel_size=1, enable_eplb=False),
        quant_config=None,
        lora_config=None,
        offload_config=SimpleNamespace(
            uva=SimpleNamespace(cpu_offload_gb=0), prefetch=SimpleNamespace(offload_group_size=0)
        ),
    )
    for path, value in changed.items():
        *parents, leaf = path.split(".")
        part: Any = vllm_config
        for parent in parents:
            part = getattr(part, parent)
        setattr(part, leaf, value)
    return vllm_config, model_config


def test_a_plain_model_is_accepted(model: Path) -> None:
    check_arguments(arguments(model))
    check_config(*config(model, {}))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tensor_parallel_size": 2}, "2 workers"),
        ({"pipeline_parallel_size": 3}, "3 workers"),
        ({"data_parallel_size": 4}, "4 workers"),
        ({"quantization": "fp8"}, r"quantized \(fp8\)"),
        ({"enable_lora": True}, "LoRA"),
        ({"enable_sleep_mode": True}, "sleep mode"),
        ({"model": "Qwen/Qwen3-0.6B"}, "no model directory"),
    ],
)
def test_arguments_are_refused(model: Path, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelRefused, match=reason) as refused:
        check_arguments(arguments(model, **changed))
    assert refused.value.hint


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"parallel_config.world_size": 2}, "2 workers"),
        ({"parallel_config.data_parallel_size": 2}, "2 workers"),
        ({"parallel_config.enable_eplb": True}, "expert load balancing"),
        ({"model_config.quantization": "awq"}, r"quantized \(awq\)"),
        ({"quant_config": object()}, "quantized"),
        ({"lora_config": object()}, "LoRA"),
        ({"model_config.enable_sleep_mode": True}, "sleep mode"),
        ({"model_config.enable_cumem_allocator": True}, "sleep mode"),
        ({"offload_config.uva.cpu_offload_gb": 1}, "offloaded"),
        ({"offload_config.prefetch.offload_group_size": 2}, "offloaded"),
        ({"model_config.is_moe": True}, "mixture-of-experts"),
    ],
)
def test_configurations_are_refused(model: Path, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelRefused, match=reason) as refused:
        check_config(*config(model, changed))
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"quantization_config": {"quant_method": "gptq"}}', r"quantized \(gptq\)"),
        (
            '{"compression_config": {}, "text_config": {"quantization_config": {"quant_method": "fp8"}}}',
            r"quantized \(fp8\)",
        ),
        ("not json", "is not JSON"),
    ],
)
def test_model_directories_are_refused(model: Path, text: str, reason: str) -> None:
    (model / "config.json").write_text(text)
    with pytest.raises(ModelRefused, match=reason):
        check_arguments(arguments(model))


def test_a_directory_without_safetensors_is_refused(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    (model / "config.json").write_text(json.dumps({"text_config": None}))
    with pytest.raises(ModelRefused, match="safetensors"):
        check_arguments(arguments(model))


def test_experts_that_vllm_packs_are_refused_before_a_weight_is_loaded() -> None:
    """Every backend that this vLLM has for experts without quantization."""
    from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend

    refused = set()
    for backend in UnquantizedMoeBackend:
        model = nn.ModuleDict({"dense": nn.Linear(1, 1), "experts": nn.Module()})
        model["experts"].quant_method = SimpleNamespace(unquantized_backend=backend)  # type: ignore[assignment]
        try:
            check_experts(model)
        except ModelRefused as error:
            refused.add(backend.name)
            assert "experts" in str(error) and backend.value in str(error) and "--moe-backend" in error.hint
    assert {"FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "AITER", "MOONEP"} <= refused
    assert {backend.name for backend in UnquantizedMoeBackend} - refused == {"TRITON", "BATCHED_TRITON"}


@pytest.mark.parametrize(
    ("cuda", "given", "taken"),
    [(True, "auto", "triton"), (True, "flashinfer_cutlass", "flashinfer_cutlass"), (False, "auto", "auto")],
)
def test_on_a_gpu_experts_are_computed_by_triton_unless_the_person_says_otherwise(
    cuda: bool, given: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.platforms import current_platform

    monkeypatch.setattr(type(current_platform), "is_cuda", lambda self: cuda)
    args = Namespace(moe_backend=given)
    choose_backends(args)
    assert args.moe_backend == taken
    choose_backends(older := Namespace())
    assert not vars(older)
