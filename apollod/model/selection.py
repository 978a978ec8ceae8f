"""Selects the parameters to train: `[trainer] layers` and `freeze`, by Hugging Face names."""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from heapq import nlargest

from apollod.errors import SelectionRefused
from apollod.model.decoder import format_layers, layer_of, parse_layers

TEXT_PREFIX = re.compile(r"^model\.language_model\.")
"""Prefix of the text model in a multimodal checkpoint; in the text-only class it is `model.`."""

NEAREST = 3  # names shown beside a pattern that matches none


def selected(
    trainable: Iterable[str], layers: str, freeze: Iterable[str], stored: Iterable[str], tied: Mapping[str, str]
) -> set[str]:
    """The names of `trainable` to train.

    `layers`: decoder layers, and nothing outside of them; "" for everything. `freeze`: patterns that exclude names; one
    that matches an alias in `tied` excludes the aliased tensor. `stored`: all names of the checkpoint, trained or not,
    which patterns may match too. Names may be in the form of the checkpoint or of the text model. Raises
    SelectionRefused for an unknown layer, a pattern that matches nothing, and if nothing is left.
    """
    names = list(trainable)
    known = {name: name for name in [*stored, *names]} | dict(tied)
    frozen = {name for pattern in freeze for name in _matched(pattern, known)}
    wanted = _in_layers(names, layers) - frozen
    if not wanted:
        raise SelectionRefused(
            f"layers = {layers!r} and freeze = {list(freeze)} leave nothing to train",
            "widen [trainer] layers, or freeze less",
        )
    return wanted


def _matched(pattern: str, known: Mapping[str, str]) -> set[str]:
    """Tensors whose names match a pattern."""
    short = {name: TEXT_PREFIX.sub("model.", name) for name in known}
    found = {known[name] for name in known if fnmatchcase(name, pattern) or fnmatchcase(short[name], pattern)}
    if not found:
        near = nlargest(NEAREST, dict.fromkeys(short.values()), lambda name: _likeness(pattern, name))
        raise SelectionRefused(
            f"no parameter matches freeze = {pattern!r}",
            f"the nearest names are {', '.join(near)}; * stands for any characters",
        )
    return found


def _likeness(pattern: str, name: str) -> float:
    """Similarity of a pattern's literal characters to the closest run of a name's parts."""
    parts, own = name.split("."), pattern.replace("*", "").strip(".")
    runs = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
    return max(SequenceMatcher(None, own, run).ratio() for run in runs)


def _in_layers(names: list[str], layers: str) -> set[str]:
    try:
        wanted = parse_layers(layers)
    except ValueError as error:
        raise SelectionRefused(str(error), "set [trainer] layers") from error
    if not wanted:
        return set(names)
    of_layer = {name: layer for name in names if (layer := layer_of(name)) is not None}
    there = frozenset(of_layer.values())
    if missing := wanted - there:
        raise SelectionRefused(
            f"layers = {layers!r} names the layers {format_layers(missing)}, which the model does not have",
            f"its decoder layers are {format_layers(there) or 'none'}",
        )
    return {name for name, layer in of_layer.items() if layer in wanted}
