"""Messages about incidents that were not delivered yet. Pure.

An alarm, a verdict that a person has to act on, or a settlement is the intent to send a message, if `[quality]
on_alarm` is set; `quality.told` is the result. The oldest is sent first.
"""

import msgspec

from apollod.core.facts.quality.events import Drop, News, QualityAlarmed, QualityNamed, QualitySettled, QualityTold
from apollod.core.schedules import NO_FAILURE, Retry


class Message(msgspec.Struct, frozen=True):
    """An incident (`about`): see `News`, `QualityAlarmed` and `QualitySettled`. `how` includes the advice, if the
    learning rate is the cause."""

    incident: int
    about: News
    at_ns: int
    step: int
    to: int
    metrics: tuple[str, ...]
    drops: dict[str, Drop]
    how: str = ""
    by: str = ""
    taken_back: int = 0


class Telling(msgspec.Struct):
    """Alarm notifications that were not delivered yet, and the attempts for the first of them."""

    waiting: list[Message] = []
    alarm: Message | None = None
    """the last one, told or not: its end is told with what it was"""
    retry: Retry = NO_FAILURE
    error: str = ""


def begun(own: Telling, wanted: bool) -> None:
    """Begin a daemon's life: messages may go to another receiver than before, or (not `wanted`) to none."""
    own.retry, own.error = NO_FAILURE, ""
    if not wanted:
        own.waiting = []


def alarmed(own: Telling, e: QualityAlarmed, at_ns: int, wanted: bool) -> None:
    """Add the message that an incident begins."""
    own.alarm = Message(e.incident, "alarmed", at_ns, e.step, e.to, e.metrics, e.drops)
    if wanted:
        own.waiting.append(own.alarm)


def found_rate(own: Telling, e: QualityNamed, at_ns: int, wanted: bool) -> None:
    """Add the message that the learning rate is the cause, with the advice."""
    if wanted and own.alarm is not None:
        own.waiting.append(msgspec.structs.replace(own.alarm, about="rate", at_ns=at_ns, how=e.reason))


def settled(own: Telling, e: QualitySettled, at_ns: int, wanted: bool) -> None:
    """Add the message that the incident ends."""
    if wanted and own.alarm is not None:
        own.waiting.append(
            msgspec.structs.replace(
                own.alarm, about="settled", at_ns=at_ns, how=e.how, by=e.by, taken_back=e.taken_back
            )
        )


def told(own: Telling, e: QualityTold, at_ns: int) -> None:
    """Record that the first message was delivered, or could not be."""
    own.error = e.reason
    over = e.ok or e.gives_up
    own.retry = NO_FAILURE if over else own.retry.after(at_ns, e.retry_s, e.attempt)
    if over:
        own.waiting = [one for one in own.waiting if (one.incident, one.about) != (e.incident, e.about)]
