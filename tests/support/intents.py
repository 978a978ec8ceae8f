"""Which intents of a journal are still open, told from its events alone (docs/decisions/0004-open-intents.md)."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Intent(NamedTuple):
    """`field` names what result and intent have in common (None: there is only one at a time)."""

    field: str | None
    settled_by: frozenset[str]


INTENTS = {
    "step.started": Intent("step", frozenset({"step.completed", "step.failed"})),
    "checkpoint.started": Intent("path", frozenset({"checkpoint.committed", "checkpoint.failed"})),
    "rollback.requested": Intent("to", frozenset({"rollback.started", "rollback.refused"})),
    "rollback.started": Intent("to", frozenset({"rollback.completed"})),
    "forget.started": Intent(None, frozenset({"forget.completed", "forget.refused"})),
    "window.opened": Intent("window", frozenset({"window.closed"})),
    "engine.paused": Intent(None, frozenset({"engine.resumed", "engine.exited", "daemon.started"})),
    "alignment.started": Intent(
        None,
        frozenset(
            {
                "alignment.measured",
                "alignment.compared",
                "alignment.failed",
                "alignment.abandoned",
                "trainer.exited",
                "engine.exited",
                "daemon.started",
            }
        ),
    ),
    "dream.requested": Intent("dream", frozenset({"dream.settled", "dream.abandoned"})),
    "quality.requested": Intent("number", frozenset({"quality.measured", "quality.failed"})),
    "quality.replay_begun": Intent(None, frozenset({"quality.replayed", "quality.replay_failed", "quality.settled"})),
    "quality.rank_begun": Intent(
        None,
        frozenset({"quality.ranked", "quality.rank_failed", "quality.settled", "trainer.exited", "daemon.started"}),
    ),
    "score.requested": Intent(
        None, frozenset({"example.scored", "score.failed", "daemon.stopped", "daemon.started"})
    ),  # nothing waits for an answer: a stop does not either
    "followup.requested": Intent(
        None,
        frozenset({"followup.scored", "followup.failed", "followup.calibrated", "daemon.stopped", "daemon.started"}),
    ),
    "engine.spawned": Intent(None, frozenset({"engine.exited", "daemon.started"})),
    "trainer.spawned": Intent(None, frozenset({"trainer.exited", "daemon.started"})),
    "shutdown.requested": Intent(None, frozenset({"daemon.stopped", "daemon.started"})),
    "daemon.started": Intent(None, frozenset({"daemon.stopped", "daemon.started"})),
}


def open_intents(events: Iterable[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, Any]]:
    """(kind, value of its field) of every intent without a result, from (kind, body) in the order of the journal.

    Raises AssertionError where an intent is recorded a second time while it is open: two would share one result.
    """
    open_: dict[tuple[str, Any], None] = {}
    for kind, body in events:
        for intent, (field, settled_by) in INTENTS.items():
            if kind in settled_by:
                open_.pop((intent, body[field] if field else None), None)
        if kind in INTENTS:
            field = INTENTS[kind].field
            key = (kind, body[field] if field else None)
            assert key not in open_, f"{key} was recorded while it was open"
            open_[key] = None
    return list(open_)
