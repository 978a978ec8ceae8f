"""Random models with the dimensions of published ones, and examples of an exact number of tokens.

usage: python -m benchmarks.scale.models OUT_DIR --kind KIND [--layers N] [--tokens N] [--examples N]

Writes OUT_DIR/model (bf16, embedding and head tied as in the published ones) and OUT_DIR/examples.jsonl. Weights are
drawn by Hugging Face's own initialisation. The tokenizer is the demo's, of fewer tokens than the vocabulary has rows:
the cost of a step and of a request does not depend on the rows in use.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

KINDS = ("qwen3-0.6b", "qwen3.5-0.8b")
POSITIONS = 2048
SEED = 0


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--layers", type=int, default=0, help="fewer than it has")
    parser.add_argument("--tokens", type=int, default=300, help="of an example")
    parser.add_argument("--examples", type=int, default=20)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = _build(args.out / "model", args.kind, args.layers)
    lines = [_example(tokenizer, args.tokens, number) for number in range(args.examples)]
    (args.out / "examples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _build(out: Path, kind: str, layers: int) -> Any:
    """Write the model directory; returns its tokenizer."""
    import torch

    from apollod.demo.tiny_model import make_tokenizer  # guards the imports of transformers

    tokenizer, began = make_tokenizer(), time.monotonic()
    config, made = _qwen3(layers) if kind == KINDS[0] else _qwen3_5(layers)
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    torch.manual_seed(SEED)
    torch.set_default_dtype(torch.bfloat16)
    model = made(config)
    config.dtype = torch.bfloat16
    model.save_pretrained(out, max_shard_size="100GB")
    tokenizer.save_pretrained(out)
    elements = sum(parameter.numel() for parameter in model.parameters())
    sys.stderr.write(f"{kind}: {elements / 1e6:.0f} million parameters, written in {time.monotonic() - began:.0f} s\n")
    return tokenizer


def _qwen3(layers: int) -> tuple[Any, Any]:
    """Dimensions of Qwen3-0.6B."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers or 28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
    ), Qwen3ForCausalLM  # fmt: skip


def _qwen3_5(layers: int) -> tuple[Any, Any]:
    """Dimensions of the text model of Qwen3.5-0.8B: three gated delta nets for each full attention."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    return Qwen3_5TextConfig(
        vocab_size=248320, hidden_size=1024, intermediate_size=3584, num_hidden_layers=layers or 24,
        num_attention_heads=8, num_key_value_heads=2, head_dim=256, linear_num_key_heads=16,
        linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
        max_position_embeddings=POSITIONS, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    ), Qwen3_5ForCausalLM  # fmt: skip


def _example(tokenizer: Any, tokens: int, number: int) -> dict[str, str]:
    """A prompt and its completion, half of `tokens` each, of meaningless words."""
    draw = random.Random(number)
    prompt = _text(tokenizer, tokens // 2, draw)
    return {"prompt": prompt, "completion": _text(tokenizer, tokens - 1, draw, prompt)[len(prompt) :]}  # and its end


def _text(tokenizer: Any, tokens: int, draw: random.Random, begin: str = "") -> str:
    """`begin` and random letters, `tokens` tokens in total; an added letter can lower the count, but not for long."""
    text = begin
    while len(tokenizer(text)["input_ids"]) != tokens:
        text += draw.choice("abcdefghijklmnopqrstuvwxyz ")
    return text


if __name__ == "__main__":
    main()
