"""Which tensor of a model directory a sender means by a name, and whether it may be written there."""

from collections.abc import Iterable, Mapping

from apollod.errors import RecordRefused
from apollod.model.selection import TEXT_PREFIX

DTYPES = ("bfloat16", "float16", "float32")
"""of tensors that may be written; they are rounded to the nearest value of the stored dtype, ties to even"""
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight")
HEAD = "lm_head.weight"


def known_names(stored: Iterable[str], tied: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every name that a sender may use -> the name in the model directory. Besides those of the directory: names
    without `language_model.`, as of a text model alone; names of tied tensors (`tied`: alias -> name); and that of a
    head that is not stored, since it is the embedding."""
    names = {name: name for name in stored}
    embeddings = [name for name in names if name.endswith(_EMBEDDINGS)]
    if HEAD not in names and len(embeddings) == 1:
        names[HEAD] = embeddings[0]
    for alias, name in (tied or {}).items():
        names.setdefault(alias, names.get(name, name))
    for name in list(names):
        names.setdefault(TEXT_PREFIX.sub("model.", name), names[name])
    return names


def check_tensor(
    name: str, dtype: str, shape: tuple[int, ...], names: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> str:
    """The name in the model directory of a tensor that may be written. Raises RecordRefused for a name that the model
    does not have, another shape, or a dtype that is not of `DTYPES`."""
    found = names.get(name)
    if found is None:
        raise RecordRefused(
            f"the model has no tensor {name[:200]!r}", f"send names of its checkpoint, such as {next(iter(names), '')}"
        )
    if shape != shapes[found]:
        raise RecordRefused(
            f"{name} has shape {list(shape)}, in the model {list(shapes[found])}", "send the tensors of this model"
        )
    if dtype not in DTYPES:
        raise RecordRefused(f"{name} is {dtype}", f"send {', '.join(DTYPES)}")
    return found
