"""Names, dtypes and shapes of a model's tensors: from its files, or without files, from its config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from apollod.errors import ModelRefused
from apollod.model.decoder import completed


@dataclass(frozen=True)
class Stored:
    """One tensor of the checkpoint; `dtype` by its torch name."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class ModelShapes:
    """`text`: the text model's part of config.json, completed from the tensors (decoder.py). `from_files`: from
    headers, else from the config alone."""

    text: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    from_files: bool


def shapes_of(config: Mapping[str, Any], stored: Mapping[str, Stored], from_files: bool = True) -> ModelShapes:
    """The shapes from a config.json and the headers' tensors (empty without files). Raises ModelRefused if that is not
    enough."""
    text = {"tie_word_embeddings": config.get("tie_word_embeddings", False), **(config.get("text_config") or config)}
    tensors = stored or _of_config(text)
    whole = completed(text, {name: tensor.shape for name, tensor in tensors.items()})
    return ModelShapes(whole, tensors, bool(stored) and from_files)


def taken_for_bf16(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Stored]:
    """Tensors of these shapes, assumed to be bfloat16, for weights that do not exist yet."""
    return {name: Stored("bfloat16", shape, 2 * prod(shape)) for name, shape in shapes.items()}


def known_from_config(config: Mapping[str, Any]) -> bool:
    """True if `shapes_of` needs no tensors for this architecture."""
    return str((config.get("text_config") or config).get("model_type")) in _LAYERS


# --- from config.json alone ---------------------------------------------------------------------------------------

_Shape = tuple[int, ...]


def _of_config(text: Mapping[str, Any]) -> dict[str, Stored]:
    kind = str(text.get("model_type", "none"))
    layers = _LAYERS.get(kind)
    if layers is None:
        raise ModelRefused(
            f"there is no *.safetensors, and the tensors of model_type {kind} are not known from config.json alone",
            f"copy the weights into the model directory; without them only {', '.join(_LAYERS)} can be sized",
        )
    try:
        shapes = _ends(text) | {
            f"model.layers.{i}.{name}": shape
            for i in range(text["num_hidden_layers"])
            for name, shape in layers(text, i).items()
        }
    except KeyError as error:
        raise ModelRefused(f"config.json does not say {error}", "restore it from where the model came from") from error
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise ModelRefused(
            f"config.json makes no sense ({error})", "restore it from where the model came from"
        ) from error
    return taken_for_bf16(shapes)


def _ends(text: Mapping[str, Any]) -> dict[str, _Shape]:
    vocabulary, hidden = text["vocab_size"], text["hidden_size"]
    ends: dict[str, _Shape] = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    return ends if text.get("tie_word_embeddings") else ends | {"lm_head.weight": (vocabulary, hidden)}


def _block(text: Mapping[str, Any]) -> dict[str, _Shape]:
    """Norms and MLP, the same in all architectures."""
    hidden, inner = text["hidden_size"], text["intermediate_size"]
    return {
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden), "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }  # fmt: skip


def head_dim(text: Mapping[str, Any]) -> int:
    """Width of an attention head."""
    return int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])


def _attention(text: Mapping[str, Any], gates: int = 1) -> dict[str, _Shape]:
    hidden, width = text["hidden_size"], head_dim(text)
    queries, keys = text["num_attention_heads"] * width, text["num_key_value_heads"] * width
    return {
        "self_attn.q_proj.weight": (gates * queries, hidden), "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden), "self_attn.o_proj.weight": (hidden, queries),
    }  # fmt: skip


def _head_norms(text: Mapping[str, Any]) -> dict[str, _Shape]:
    return {f"self_attn.{name}_norm.weight": (head_dim(text),) for name in "qk"}


def _llama(text: Mapping[str, Any], _index: int) -> dict[str, _Shape]:
    return _block(text) | _attention(text)


def _qwen3(text: Mapping[str, Any], index: int) -> dict[str, _Shape]:
    return _llama(text, index) | _head_norms(text)


def _qwen3_5(text: Mapping[str, Any], index: int) -> dict[str, _Shape]:
    if layer_types(text)[index] == "full_attention":
        return _block(text) | _attention(text, gates=2) | _head_norms(text)
    hidden, width, heads = text["hidden_size"], text["linear_value_head_dim"], text["linear_num_value_heads"]
    values, keys = heads * width, text["linear_num_key_heads"] * text["linear_key_head_dim"]
    mixed = 2 * keys + values
    linear: dict[str, _Shape] = {
        "in_proj_qkv.weight": (mixed, hidden), "in_proj_z.weight": (values, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden), "conv1d.weight": (mixed, 1, text["linear_conv_kernel_dim"]),
        "dt_bias": (heads,),
        "A_log": (heads,), "norm.weight": (width,), "out_proj.weight": (hidden, values),
    }  # fmt: skip
    return _block(text) | {f"linear_attn.{name}": shape for name, shape in linear.items()}


def layer_types(text: Mapping[str, Any]) -> list[str]:
    """ "full_attention" or "linear_attention" for each decoder layer."""
    if given := text.get("layer_types"):
        return list(given)
    every = text.get("full_attention_interval") or (4 if str(text.get("model_type", "")).startswith("qwen3_5") else 1)
    return ["linear_attention" if (i + 1) % every else "full_attention" for i in range(text["num_hidden_layers"])]


_LAYERS: dict[str, Callable[[Mapping[str, Any], int], dict[str, _Shape]]] = {
    "llama": _llama, "mistral": _llama, "qwen3": _qwen3, "qwen3_5": _qwen3_5, "qwen3_5_text": _qwen3_5,
}  # fmt: skip
