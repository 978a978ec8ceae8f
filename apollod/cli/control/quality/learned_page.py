"""What was learned and what it cost, as lines of the report. Pure."""

from collections.abc import Mapping
from typing import Any

from apollod.cli import render

Object = Mapping[str, Any]


def lines(report: Object) -> list[str]:
    """After an empty one; none where nothing was learned or asked."""
    learned = [
        f"{t['examples']:,} {t['tier']} in {t['steps']:,} steps, {t['tokens']:,} tokens, "
        f"{render.duration(t['seconds'])}"
        for t in report["learned"]["tiers"]
    ]
    spent = [f"{one['what']} {render.duration(one['seconds'])}" for one in report["spent"] if one["count"]]
    found = [f"learned     {'; '.join(learned)}"] if learned else []
    if report["divergence"]["both"]:
        likelier, both = report["divergence"]["likelier"], report["divergence"]["both"]
        found.append(f"untold      {likelier} of {both} learned answers got likelier")
    found = [*found, *([f"spent       {', '.join(spent)}"] if spent else [])]
    return ["", *found] if found else []
