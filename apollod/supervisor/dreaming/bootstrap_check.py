"""Finds the answers of a log that show the behaviour which a bootstrap teaches, by the check of its pattern."""

import json
from collections.abc import Callable

import msgspec

from apollod.adapters.checks import check_answers
from apollod.core.dreams.scenario import Turn
from apollod.core.inputs import Batch, Line
from apollod.core.settings import Check

NOT_SHOWN = "the check of its pattern does not pass it"
AT_ONCE = 32
"""records between two tests that this is still wanted: a command may take seconds for each"""

Answer = tuple[tuple[Turn, ...], str]


def answers_of(record: bytes) -> list[Answer]:
    """Target answers of a conversation, each with all messages of user and assistant before it."""
    said: list[Turn] = []
    found: list[Answer] = []
    for message in json.loads(record).get("messages", ()):
        if message["role"] not in ("user", "assistant"):
            continue
        text = message.get("content") or ""
        if message["role"] == "assistant" and message.get("weight") != 0:
            found.append((tuple(said), text))
        said.append(Turn(message["role"], text))
    return found


async def passing(check: Check, records: list[bytes]) -> list[bool]:
    """For each record, true if all its target answers pass the check, which is made by code. Raises DreamCheckFailed if
    the check cannot be run."""
    answers = [answers_of(record) for record in records]
    told = iter(await check_answers(check, [one for each in answers for one in each]))
    return [bool(each) and all([next(told)[0] for _ in each]) for each in answers]


async def checked(batch: Batch, check: Check, wanted: Callable[[], bool] = lambda: True) -> Batch | None:
    """The batch without the examples that fail; their evidence about answers stays. None: no longer `wanted`. Raises
    DreamCheckFailed."""
    records = [line.record for line in batch.lines if line.example]
    passed: list[bool] = []
    for at in range(0, len(records), AT_ONCE):
        if not wanted():
            return None
        passed += await passing(check, records[at : at + AT_ONCE])
    verdicts = iter(passed)
    lines = [line if not line.example or next(verdicts) else _without(line) for line in batch.lines]
    failed = passed.count(False)
    if not failed:
        return batch
    what = f"dropped: {NOT_SHOWN}"
    return msgspec.structs.replace(
        batch, lines=tuple(line for line in lines if line.example or line.reason or line.evidence or line.unscored),
        counts={**batch.counts, what: batch.counts.get(what, 0) + failed}, unlearned=batch.unlearned + failed,
    )  # fmt: skip


def _without(line: Line) -> Line:
    """The line's evidence about answers, without its example."""
    return Line(number=line.number, evidence=line.evidence, unscored=line.unscored)
