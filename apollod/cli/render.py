"""Text for people: tables and sizes. Plain ASCII, no meaning by colour."""

from collections.abc import Sequence
from typing import Any

CELL_MAX = 60
FLOAT32_PRODUCTS = (
    "in float32, as for a processor without bf16 instructions: a step takes about 3 times as long as with them"
)
"""The figure is of docs/benchmarks/2026-11-22-cpu-products.md."""


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell; numbers to the right."""
    names = [plain(" ".join(c.split())) for c in columns]
    cells = [[_cell(v) for v in row] for row in rows]
    widths = [max([len(c), *(len(r[i]) for r in cells)]) for i, c in enumerate(names)]
    right = [bool(rows) and all(isinstance(r[i], int | float | None) for r in rows) for i in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        return "  ".join(
            v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)
        ).rstrip()

    return "\n".join([line(names), line(["-" * w for w in widths]), *(line(r) for r in cells)])


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = plain(" ".join(text.split())[: CELL_MAX + 1])  # cut first: a value may be very long
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 3] + "..."


def plain(text: str) -> str:
    """Text from outside, so that nothing in it can steer the terminal; lines and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def size(count: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def growth_text(journal_per_day: int, history_per_day: int, days_left: float | None) -> str:
    """How fast the state directory grows, and for how long its disk is enough."""
    left = "" if days_left is None else f"; the disk is full in {days_left:.3g} days"
    return f"journal {size(journal_per_day)} a day, history {size(history_per_day)} a day{left}"
