"""Which models round along the whole text, told from config.json."""

from typing import Any

import pytest

from apollod.model.config_facts import kind_of

DENSE: list[dict[str, Any]] = [
    {"model_type": "qwen3", "num_hidden_layers": 2},
    {"model_type": "gpt_oss", "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    {"model_type": "qwen3_5_text", "num_hidden_layers": 1, "layer_types": ["full_attention"]},
    {"model_type": "gpt2", "n_layer": 12},
    {},
]
HYBRID: list[dict[str, Any]] = [
    {"model_type": "qwen3_5_text", "num_hidden_layers": 4},
    {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", "num_hidden_layers": 4}},
    {"model_type": "qwen3_next", "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
    {"model_type": "lfm2", "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    {"model_type": "bamba", "num_hidden_layers": 2, "layers_block_type": ["mamba", "attention"]},
    {"model_type": "falcon_mamba", "num_hidden_layers": 2},
]


@pytest.mark.parametrize("config", DENSE, ids=str)
def test_attention_alone_is_dense(config: dict[str, Any]) -> None:
    assert kind_of(config) == "dense"


@pytest.mark.parametrize("config", HYBRID, ids=str)
def test_any_recurrent_layer_makes_a_hybrid(config: dict[str, Any]) -> None:
    assert kind_of(config) == "hybrid"
