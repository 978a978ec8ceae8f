"""Parses selections of decoder layers such as "0-3,20-31"."""

import re

_RANGES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")


def parse_layers(text: str) -> frozenset[int]:
    """Indices, from 0, both ends of a range included; white space does not count. Raises ValueError with the right
    form."""
    compact = "".join(text.split())
    if not compact:
        return frozenset()
    if not _RANGES.fullmatch(compact):
        raise ValueError(f'layers = "{text}" names no layers; write indices and ranges, such as "20-31" or "0-3,20-31"')
    named: set[int] = set()
    for part in compact.split(","):
        first, _, last = part.partition("-")
        if int(last or first) < int(first):
            raise ValueError(f'layers = "{text}" has a range that ends before it begins: {part}')
        named.update(range(int(first), int(last or first) + 1))
    return frozenset(named)


def format_layers(layers: frozenset[int]) -> str:
    """The shortest text that `parse_layers` turns into these."""
    parts: list[list[int]] = []
    for layer in sorted(layers):
        if parts and layer == parts[-1][1] + 1:
            parts[-1][1] = layer
        else:
            parts.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
