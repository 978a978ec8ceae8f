"""The figures as a Markdown table."""

from collections.abc import Mapping
from typing import Any


def markdown(figures: Mapping[str, float], ratios: Mapping[str, float], goals: Mapping[str, Any]) -> str:
    """One row for each goal, with whether it is met; then one for each ratio and figure."""
    lines = ["| goal | measured | bound | met |", "|---|---:|---:|---|"]
    for name, goal in goals.items():
        lines.append(
            f"| {_words(name)} | {goal['value']:.4g} | {goal['goal']:g} | {'yes' if goal['met'] else '**no**'} |"
        )
    lines += ["", "| figure | |", "|---|---:|"]
    lines += [f"| {_words(name)} | {value:.4g} |" for name, value in ratios.items()]
    lines += [f"| {_words(name)} | {_with_unit(name, value)} |" for name, value in figures.items()]
    return "\n".join(lines) + "\n"


def _words(name: str) -> str:
    return name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")


def _with_unit(name: str, value: float) -> str:
    """A value in the unit that the end of its name says; GB are 10^9 bytes."""
    if name.endswith("_bytes"):
        return f"{value / 1e9:.3f} GB"
    if name.endswith("_share"):
        return f"{value:.1%}"
    return f"{value:.2f} s" if name.endswith("_s") else f"{value:g}"
