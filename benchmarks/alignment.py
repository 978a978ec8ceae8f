"""Measures the difference between the engine's log-probabilities and the trainer's, in the correct state and with
planted mistakes.

The engine is apollod's, as `apollod init` configures it, on a copy of `--model`; the other side is the model that the
trainer builds, bound to the same files. Each of `--texts` (files; the built-in text is always included) is scored by
both up to `--tokens` tokens; shorter prefixes are taken from the same scores. Mistakes are made in the trainer's model,
one at a time: a bound must distinguish them from rounding.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import torch

from apollod import foreign_wheels
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.system.hardware import products_dtype
from apollod.products import products_in
from apollod.testing.daemon import Daemon, free_port
from benchmarks import report

WHOLE = 256  # tokens of the built-in text that an idle daemon compares
PREFIXES = (8, 22, 64, WHOLE, 512, 1024)
ALIGN_MAX = "APOLLOD_TRAINER__ALIGN_MAX"  # set so large that nothing halts during the measurement


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--model", required=True, help="a model directory; it is copied")
    parser.add_argument("--texts", nargs="*", default=[], help="files to score besides the built-in text")
    parser.add_argument("--tokens", type=int, default=512, help="of a text, with nothing wrong; mistakes take 256")
    parser.add_argument("--right-only", action="store_true", help="plant no mistakes")
    args = parser.parse_args()
    foreign_wheels.guard()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from apollod.trainer.scoring import PROBE_TEXT, score

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    texts = {"built-in": PROBE_TEXT} | {Path(f).name: Path(f).read_text(errors="replace") for f in args.texts}
    ids = {
        name: tuple(tokenizer(t[:20_000], add_special_tokens=False)["input_ids"])[: args.tokens]
        for name, t in texts.items()
    }
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        engine = _by_engine(Path(directory), Path(args.model), ids)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    figures: dict[str, float] = {}
    for name, plant in {"right": _right, **({} if args.right_only else MISTAKES)}.items():
        try:
            with plant(model), products_in(products_dtype("auto")):
                most = args.tokens if name == "right" else min(args.tokens, WHOLE)
                trainer = {text: score(model, one[:most]) for text, one in ids.items()}
        except LookupError:
            continue  # the model has no such parameters
        print(name, file=sys.stderr)
        figures |= {f"{name}.{key}": value for key, value in _differences(trainer, engine).items()}
    report.report("alignment", figures, {}, {}, threads=torch.get_num_threads(), as_json=args.json)


def _by_engine(root: Path, model: Path, ids: dict[str, tuple[int, ...]]) -> dict[str, tuple[float, ...]]:
    """Log-probabilities of the texts, by the engine with the configuration of `apollod init`."""
    copy, port = root / "model", free_port()
    shutil.copytree(model, copy)
    made = [sys.executable, "-m", "apollod", "init", str(root / "made"), "--model", str(copy)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    config = (root / "made" / "apollod.toml").read_text().replace("port = 8000", f"port = {port}")
    daemon = Daemon(root / "made", config, port)
    daemon.start({ALIGN_MAX: "1000"})
    try:
        daemon.wait_ready()
        return anyio.run(_scored, Endpoint(f"{daemon.url}/v1", "apollo"), ids)
    finally:
        daemon.end()


async def _scored(endpoint: Endpoint, ids: dict[str, tuple[int, ...]]) -> dict[str, tuple[float, ...]]:
    async with HttpLlm(endpoint) as llm:
        return {name: (await llm.score(one)).logprobs for name, one in ids.items()}


def _differences(trainer: dict[str, tuple[float, ...]], engine: dict[str, tuple[float, ...]]) -> dict[str, float]:
    """Means over the first tokens of each text, and the largest single one."""
    found = {}
    for text, ours in trainer.items():
        apart = [abs(a - b) for a, b in zip(ours, engine[text], strict=False)]
        for most in PREFIXES:
            if len(apart) >= most - 1:
                found[f"{text}.mean{most}"] = sum(apart[: most - 1]) / (most - 1)
        found[f"{text}.max"] = max(apart)
    return found


# --- mistakes ---------------------------------------------------------------------------------------------------------


@contextmanager
def _right(model: Any) -> Iterator[None]:
    yield


def _layer(model: Any) -> Any:
    """A layer in the middle."""
    layers = model.model.layers
    return layers[len(layers) // 2]


@contextmanager
def _theta(model: Any) -> Iterator[None]:
    """Rotary frequencies of another base: as if a config field had moved and was read at its old place."""
    rotary = model.model.rotary_emb
    kept = rotary.inv_freq.clone()
    dim = 2 * kept.numel()
    rotary.inv_freq.copy_(1.0 / (10_000.0 ** (torch.arange(0, dim, 2).float() / dim)))
    yield
    rotary.inv_freq.copy_(kept)


@contextmanager
def _epsilon(model: Any) -> Iterator[None]:
    norms = [m for m in model.modules() if hasattr(m, "variance_epsilon")]
    kept = [m.variance_epsilon for m in norms]
    for norm in norms:
        norm.variance_epsilon *= 10
    yield
    for norm, value in zip(norms, kept, strict=True):
        norm.variance_epsilon = value


@contextmanager
def _no_norm(model: Any) -> Iterator[None]:
    """One norm is left out."""
    layer = _layer(model)
    norm, layer.post_attention_layernorm = layer.post_attention_layernorm, torch.nn.Identity()
    yield
    layer.post_attention_layernorm = norm


@contextmanager
def _plain_norm(model: Any) -> Iterator[None]:
    """One norm without its learned scale."""
    weight = _layer(model).post_attention_layernorm.weight
    kept = weight.detach().clone()
    weight.data.fill_(1)
    yield
    weight.data.copy_(kept)


@contextmanager
def _activation(model: Any) -> Iterator[None]:
    """GELU where SiLU belongs, in every layer."""
    kept = [layer.mlp.act_fn for layer in model.model.layers]
    for layer in model.model.layers:
        layer.mlp.act_fn = torch.nn.GELU()
    yield
    for layer, act in zip(model.model.layers, kept, strict=True):
        layer.mlp.act_fn = act


@contextmanager
def _scale(model: Any) -> Iterator[None]:
    """Attention without 1/sqrt(head size) in one layer."""
    attention = _layer(model).self_attn
    kept, attention.scaling = attention.scaling, attention.scaling * 2
    yield
    attention.scaling = kept


@contextmanager
def _stretched(model: Any) -> Iterator[None]:
    """Positions that are 1 % too far apart."""
    rotary, forward = model.model.rotary_emb, model.model.rotary_emb.forward
    rotary.forward = lambda x, position_ids: forward(x, position_ids * 1.01)
    yield
    rotary.forward = forward


@contextmanager
def _stale(model: Any, steps: float) -> Iterator[None]:
    """One matrix with outdated values: differs by `steps` of bf16's last place at random elements."""
    weight = _layer(model).mlp.down_proj.weight
    kept = weight.detach().clone()
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    weight.data.copy_((kept.float() * (1 + steps * 2**-8 * noise)).bfloat16())
    yield
    weight.data.copy_(kept)


@contextmanager
def _rolled(model: Any) -> Iterator[None]:
    """One matrix with its rows in another order."""
    weight = _layer(model).mlp.down_proj.weight
    kept = weight.detach().clone()
    weight.data.copy_(kept.roll(1, 0))
    yield
    weight.data.copy_(kept)


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "theta": _theta,
    "epsilon x10": _epsilon,
    "norm left out": _no_norm,
    "norm without scale": _plain_norm,
    "gelu": _activation,
    "attention scale x2": _scale,
    "positions by 1.01": _stretched,
    "stale tensor by 1 ulp": lambda model: _stale(model, 1.0),
    "stale tensor by 16 ulp": lambda model: _stale(model, 16.0),
    "tensor with rows moved": _rolled,
}


if __name__ == "__main__":
    main()
