"""The state machine of an example: which event takes it from which state to which.

Law: this table is the definition. The view `examples` of the journal is made from it (`adapters/journal/schema.py`);
the counts of the core follow it, and tests compare the two. Events are passed as kind and body, so that events of a
newer apollod may be among them.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

ExampleState = Literal[
    "pending", "trained", "rejected", "skipped", "held", "undone", "withdrawn", "declined", "edited", "expired"
]
STATES: tuple[ExampleState, ...] = get_args(ExampleState)
"""pending: it waits to be learned, or is being learned; trained; rejected: it cannot be learned from; skipped: its loss
was not finite or above its limit, or the model knew it: nothing was written; held: a person or judge has to decide
about it, or its step could not be run; undone: its step was taken back; withdrawn: it was taken out of the queue, or
its step was taken back for good; declined: decided against; edited: another one is learned in its place; expired: not
decided in time, or it waited too long to be learned"""


class Rule(NamedTuple):
    """Transition: an event of this kind moves its examples from one of these states (None: not accepted yet) to
    another.

    `field`: the rule holds only for events in which this field is `value`. If several rules have the same kind, the
    first holds for an event without that field, as in old journals.
    """

    kind: str
    out_of: tuple[ExampleState | None, ...]
    into: ExampleState
    field: str = ""
    value: bool = True


RULES = (
    Rule("example.accepted", (None,), "pending"),
    Rule("example.rejected", ("pending",), "rejected"),
    Rule("example.looked", ("pending",), "skipped", "known", True),
    Rule("example.looked", ("pending",), "pending", "known", False),
    # An undone example may be learned again by a step that repeats the undone one.
    Rule("step.completed", ("pending", "undone"), "trained", "applied", True),
    Rule("step.completed", ("pending", "undone"), "skipped", "applied", False),
    Rule("step.failed", ("pending", "undone"), "held", "apart", False),
    Rule("step.failed", ("pending",), "pending", "apart", True),  # the examples of the step are learned one by one
    Rule("rollback.started", ("trained",), "undone"),
    Rule("example.withdrawn", ("pending", "undone"), "withdrawn"),
    Rule("example.requeued", ("undone", "withdrawn"), "pending"),
    Rule("example.held", ("pending", "declined", "edited", "expired", "undone"), "held"),
    Rule("example.approved", ("held", "declined", "expired"), "pending"),
    Rule("example.declined", ("held", "pending", "expired"), "declined"),
    Rule("example.edited", ("held", "pending", "declined", "expired"), "edited"),
    Rule("example.expired", ("held", "pending"), "expired"),
)
KINDS = tuple(dict.fromkeys(rule.kind for rule in RULES))


def rule_of(kind: str, body: Mapping[str, Any]) -> Rule | None:
    """The rule for an event; None if it moves no example."""
    rules = [rule for rule in RULES if rule.kind == kind]
    return next((rule for rule in rules if not rule.field or body.get(rule.field, rules[0].value) == rule.value), None)


def state_after(state: ExampleState | None, rule: Rule) -> ExampleState | None:
    """The state after an event; unchanged if the rule does not start from this state."""
    return rule.into if state in rule.out_of else state


def examples_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Examples named by an event of one of the KINDS."""
    return tuple(body.get("examples") or ()) or ((body["example"],) if "example" in body else ())
