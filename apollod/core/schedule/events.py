"""Facts: the hours in which the queue is learned."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class NightPlanned(Event, frozen=True):
    """The hours of `[schedule] nightly` that come next, or that it is in: nanoseconds since 1970. `hours` and `zone` as
    they are configured; without hours there is no night."""

    kind: ClassVar[str] = "night.planned"
    opens_ns: int
    closes_ns: int
    hours: str = ""
    zone: str = ""


class NightOpened(Event, frozen=True):
    """What waits is learned from now on. `waiting`: how many examples."""

    kind: ClassVar[str] = "night.opened"
    waiting: int


class NightClosed(Event, frozen=True):
    """What is not learned yet waits for the next night. `steps` were made in this one."""

    kind: ClassVar[str] = "night.closed"
    steps: int
    waiting: int
