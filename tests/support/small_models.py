"""Models with a large vocabulary and little else, in memory."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from apollod.trainer.data import Tokens

VOCABULARY = 9192


def small_model(tie: bool = False, padding: int | None = None, vocabulary: int = VOCABULARY, hidden: int = 64) -> LlamaForCausalLM:
    """bf16, two layers, the same weights for the same arguments."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=tie, pad_token_id=padding, initializer_range=0.2, max_position_embeddings=4096,
    )  # fmt: skip
    return LlamaForCausalLM(config).bfloat16().eval()


def tokens_of(model: LlamaForCausalLM, count: int, seed: int = 0) -> Tokens:
    """Random ids, some of them more than once; the second half is learned."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, model.config.vocab_size, (count,), generator=generator)
    ids[count // 3] = ids[0]
    ids[-1] = ids[1]
    return Tokens(ids.tolist(), [False] * (count // 2) + [True] * (count - count // 2))
