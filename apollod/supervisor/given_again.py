"""Looks up, in the journal, examples whose lines are given again."""

from collections.abc import Collection, Mapping

from apollod.adapters.journal.writer import Journal
from apollod.core.inputs import Batch, Taught
from apollod.core.intake.again import again_id, asked_about


async def given_again(
    journal: Journal, batch: Batch, known: Collection[str], learned: Mapping[str, str]
) -> dict[str, Taught]:
    """By id, the examples that lines of a batch repeat and may teach again. `known`: its examples that the journal has;
    `learned`: see `LinesRead.responses`. Raises JournalError."""
    lines = [(line, line.tier or batch.tier) for line in batch.lines]
    times = dict.fromkeys(asked_about(lines, known, learned), 1)
    rest = set(times)
    while rest:
        found = await journal.known({again_id(one, times[one]) for one in rest})
        rest = {one for one in rest if again_id(one, times[one]) in found}
        for one in rest:
            times[one] += 1
    newest = {one: again_id(one, count - 1) if count > 1 else one for one, count in times.items()}
    direct = any(tier == "direct" for _, tier in lines)
    accepted = await journal.accepted_of(newest.values()) if direct and newest else {}
    return {
        one: Taught(last, times[one], accepted[last].tier if last in accepted else "direct")
        for one, last in newest.items()
    }
