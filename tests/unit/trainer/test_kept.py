"""What layers of transformers' decoders keep for the backward pass, counted, against what is told beforehand."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from apollod.errors import ModelRefused
from apollod.model.decoder import in_layers
from apollod.model.kept import Batch, StepShape, is_bound, kept_bytes
from apollod.model.shapes import ModelShapes, Stored, shapes_of

SIZES = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
WIDE = {"head_dim": 64}
WINDOW = {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
LATENT = {
    "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "num_key_value_heads": 4,
}  # fmt: skip
CHOSEN = {
    "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "moe_intermediate_size": 96,
    "num_experts_per_tok": 2, "shared_expert_intermediate_size": 160, "mlp_only_layers": [], "decoder_sparse_step": 1,
}  # fmt: skip
HYBRID = {
    "head_dim": 64, "layer_types": ["linear_attention", "full_attention", "full_attention"], "linear_num_key_heads": 1,
    "linear_num_value_heads": 2, "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
}  # fmt: skip

EXACT = {
    "llama": WIDE, "mistral": WIDE, "ministral": WIDE | WINDOW, "qwen2": {}, "smollm3": {}, "granite": {},
    "seed_oss": WIDE, "qwen3": WIDE, "qwen3_5_text": HYBRID,
}  # fmt: skip
BOUND = {
    "gemma": WIDE, "gemma2": WIDE | WINDOW, "gemma3_text": WIDE | WINDOW, "phi": {}, "phi3": {}, "olmo": {},
    "olmo2": {}, "olmo3": WINDOW, "starcoder2": {}, "cohere2": WINDOW, "gpt_neox": {}, "gpt2": {"n_embd": 128},
    "glm": {}, "glm4": {}, "exaone4": WINDOW, "ernie4_5": WIDE, "nemotron": WIDE, "apertus": {}, "arcee": WIDE,
    "hunyuan_v1_dense": WIDE, "nanochat": {}, "biogpt": {}, "gpt_bigcode": {"n_inner": 384}, "minicpm3": LATENT,
    "deepseek_v3": LATENT | CHOSEN | {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "deepseek_v2": LATENT | CHOSEN | {"first_k_dense_replace": 1, "topk_method": "greedy"},
    "qwen3_moe": WIDE | CHOSEN, "mixtral": CHOSEN, "olmoe": CHOSEN, "qwen2_moe": CHOSEN, "granitemoe": CHOSEN,
    "phimoe": CHOSEN, "flex_olmo": CHOSEN, "ernie4_5_moe": CHOSEN | {"moe_num_experts": 8, "moe_k": 2},
    "glm4_moe": CHOSEN, "minimax_m2": CHOSEN, "qwen3_5_moe_text": HYBRID | CHOSEN,
}  # fmt: skip


def build(kind: str, sizes: Mapping[str, Any]) -> tuple[PreTrainedModel, ModelShapes]:
    """bf16, as the trainer builds it; and its shapes, with config.json as it would be saved."""
    config = CONFIG_MAPPING[kind](**{**SIZES, **sizes})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16).eval()
    stored = {n: Stored("bfloat16", tuple(p.shape), 2 * p.numel()) for n, p in model.named_parameters()}
    return model, shapes_of(config.to_diff_dict() | {"model_type": kind}, stored)


@contextmanager
def counting(model: PreTrainedModel, found: list[int]) -> Iterator[None]:
    """Append what each layer keeps: storages that autograd saves, each once, without those of weights and buffers."""
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        if (storage := tensor.untyped_storage()).data_ptr() not in known:
            known.add(storage.data_ptr())
            found[-1] += storage.nbytes()
        return tensor

    def enter(*_: object) -> None:
        found.append(0)
        hooks.append(torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor))
        hooks[-1].__enter__()

    hooks: list[Any] = []
    layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 3)
    handles = [layer.register_forward_pre_hook(enter) for layer in layers]
    handles += [layer.register_forward_hook(lambda *_: hooks.pop().__exit__()) for layer in layers]
    yield
    for handle in handles:
        handle.remove()


def counted(model: PreTrainedModel, rows: int, length: int, padded: bool = False) -> list[int]:
    """Bytes a layer, after those of the first that all of them share (rotary embeddings, masks) are found."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 500, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        mask[:, length // 2 :] = 0
        mask[0] = 1
    found: list[int] = []
    with counting(model, found):
        model(input_ids=ids, attention_mask=mask, use_cache=False)
    return found


@pytest.mark.parametrize("kind", EXACT)
def test_of_architectures_that_were_counted_it_is_known_to_the_byte(kind: str) -> None:
    """But for what one layer keeps for all: cosines and sines of the places, and one mask of a byte a pair. A gated
    delta net keeps a little less of sequences of one chunk."""
    model, shapes = build(kind, EXACT[kind])
    assert not is_bound(shapes)
    for rows, length, padded in ((1, 72, False), (1, 96, False), (3, 80, True)):
        found = counted(model, rows, length, padded)
        told = kept_bytes(shapes)(StepShape(Batch(rows, length)))
        shared = rows * length * (4 * 64 + length)
        assert found[-1] == told[-1], (rows, length)
        assert all(0 <= one - own <= shared for one, own in zip(found, told, strict=True)), (rows, length)


@pytest.mark.parametrize("kind", BOUND)
def test_of_others_it_is_bounded_by_the_shapes_of_a_layer(kind: str) -> None:
    """Also where a mask makes attention keep more: sequences that are filled up, and ones longer than a window. The
    bound is no more than three times as much."""
    model, shapes = build(kind, BOUND[kind])
    assert is_bound(shapes) and len(in_layers({n: s.shape for n, s in shapes.tensors.items()})) == 3
    for rows, length, padded in ((1, 24, False), (1, 160, False), (3, 40, True)):
        found, told = counted(model, rows, length, padded), kept_bytes(shapes)(StepShape(Batch(rows, length)))
        for one, most in zip(found, told, strict=True):
            assert one <= most <= 3 * one, (kind, rows, length, one / most)


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_moe", "qwen2"])
def test_what_a_config_does_not_say_the_tensors_tell(kind: str) -> None:
    """Many write down only what differs from the defaults of their class."""
    _, whole = build(kind, (BOUND | EXACT)[kind])
    short = shapes_of({"model_type": kind, "num_experts_per_tok": 2}, whole.tensors)
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"):
        assert short.text[key] == whole.text[key], key
    step = StepShape(Batch(1, 64))
    assert all(a <= b for a, b in zip(kept_bytes(whole)(step), kept_bytes(short)(step), strict=True))


def test_a_layer_with_a_convolution_of_its_own_is_refused_with_the_way_out() -> None:
    _, known = build("olmo2", {})
    tensors = {**known.tensors, "model.layers.1.conv.weight": Stored("bfloat16", (128, 1, 4), 1024)}
    with pytest.raises(ModelRefused) as refused:
        kept_bytes(shapes_of(known.text, tensors))
    assert "olmo2" in str(refused.value) and "conv.weight" in str(refused.value)
    assert "kv_cache_mib" in refused.value.hint


def test_experts_that_are_stored_the_other_way_round_are_refused() -> None:
    """As Llama 4 has them, whose module multiplies each token with all of them."""
    stack = {"model.layers.0.feed_forward.experts.gate_up_proj": Stored("bfloat16", (8, 128, 768), 2 * 8 * 128 * 768)}
    _, known = build("olmo2", {})
    with pytest.raises(ModelRefused, match=r"experts\.gate_up_proj"):
        kept_bytes(shapes_of(known.text, {**known.tensors, **stack}))
