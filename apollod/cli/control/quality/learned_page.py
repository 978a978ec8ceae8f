"""Renders what was learned and what it cost, as lines of the report. Pure."""

from collections.abc import Mapping
from typing import Any

from apollod.cli import render
from apollod.cli.control.questions import gain_facts

Object = Mapping[str, Any]


def lines(report: Object) -> list[str]:
    """After an empty one; none where nothing was learned or asked."""
    learned = [
        f"{t['examples']:,} {t['tier']} in {t['steps']:,} steps, {t['tokens']:,} tokens, "
        f"{render.duration(t['seconds'])}"
        for t in report["learned"]["tiers"]
    ]
    if known := report["learned"]["known"]:
        learned.append(f"{known:,} {'were' if known > 1 else 'was'} known already")
    spent = [f"{one['what']} {render.duration(one['seconds'])}" for one in report["spent"] if one["count"]]
    found = [f"learned     {'; '.join(learned)}"] if learned else []
    if gains := report["gains"]:
        found.append(f"            {gain_facts.told_totals(gains)}")
    if report["divergence"]["both"]:
        found.append(f"untold      {untold(report['divergence'])}")
        tiers = report["divergence"]["tiers"]
        found += [f"            {one['tier']}: {untold(one)}" for one in tiers if len(tiers) > 1]
    found = [*found, *([f"spent       {', '.join(spent)}"] if spent else [])]
    return ["", *found] if found else []


def untold(found: Object) -> str:
    """True if the model says what it learned without being told. Of a `divergence`, or a tier of it, with both scores
    of an example."""
    told = f"{found['likelier']} of {found['both']} learned answers got likelier"
    told += f", {found['untold_before']:.3f} -> {found['untold_after']:.3f} nats a token on average"
    return told + (f", {found['closed']:.0%} of the way to the told ones" if found["closed"] is not None else "")
