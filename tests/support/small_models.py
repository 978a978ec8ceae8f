"""Models with a large vocabulary and little else, in memory."""

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from apollod.trainer.objectives.tokens import Tokens

VOCABULARY = 9192


def small_model(
    tie: bool = False, padding: int | None = None, vocabulary: int = VOCABULARY, hidden: int = 64
) -> LlamaForCausalLM:
    """bf16, two layers, the same weights for the same arguments."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=tie, pad_token_id=padding, initializer_range=0.2,
        max_position_embeddings=4096,
    )  # fmt: skip
    return LlamaForCausalLM(config).bfloat16().eval()


def tokens_of(model: LlamaForCausalLM, count: int, seed: int = 0) -> Tokens:
    """Random ids, some of them more than once; the second half is learned."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, model.config.vocab_size, (count,), generator=generator)
    ids[count // 3] = ids[0]
    ids[-1] = ids[1]
    return Tokens(ids.tolist(), [False] * (count // 2) + [True] * (count - count // 2))


def hybrid(layers: str, vocabulary: int, hidden: int = 128, inner: int = 256) -> Qwen3_5ForCausalLM:
    """bf16 Qwen3.5 of random weights; a letter a layer as in `tiny.Kind`: "d" gated delta net, "a" full attention."""
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=len(layers),
        layer_types=[{"d": "linear_attention", "a": "full_attention"}[layer] for layer in layers],
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, linear_num_key_heads=1, linear_num_value_heads=2,
        linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    )  # fmt: skip
    return Qwen3_5ForCausalLM(config).bfloat16().eval()


def mixture(experts: int, taken: int, hidden: int, inner: int, vocabulary: int = 400) -> Qwen3MoeForCausalLM:
    """bf16 Qwen3-MoE of random weights, two layers."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=vocabulary, hidden_size=hidden, moe_intermediate_size=inner, num_hidden_layers=2,
        num_experts=experts, num_experts_per_tok=taken, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        tie_word_embeddings=False, initializer_range=0.05,
    )  # fmt: skip
    return Qwen3MoeForCausalLM(config).bfloat16().eval()
