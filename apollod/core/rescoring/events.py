"""Events of rescoring: the change in loss of learned examples."""

from typing import ClassVar

import msgspec

from apollod.core.kernel.event import Event


class RescoreRequested(Event, frozen=True):
    """Intent: the trainer scores these learned examples again, with the weights of `step`."""

    kind: ClassVar[str] = "rescore.requested"
    number: int
    examples: tuple[str, ...]
    step: int


class Rescored(msgspec.Struct, frozen=True, omit_defaults=True):
    """Loss of an example, nats a token, before `learned_in`, the step that learned it, and `after`: mean of -log p over
    its learned tokens (`tokens` of them). `after` None: not scored, for the `reason`."""

    example: str
    learned_in: int
    before: float
    after: float | None
    tokens: int = 0
    reason: str = ""


class ExamplesRescored(Event, frozen=True):
    """Result: the scores of request `number`, with the weights of `step`. Missing examples are requested again: another
    request interrupted the trainer. Nothing was written."""

    kind: ClassVar[str] = "example.rescored"
    number: int
    step: int
    scores: tuple[Rescored, ...]
    seconds: float
