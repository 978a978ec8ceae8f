"""Facts: the hours in which the queue is learned."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class NightPlanned(Event, frozen=True):
    """The next hours of `[schedule] nightly`, or the present ones: nanoseconds since 1970. `hours` and `zone` as they
    are configured; without hours there is no night."""

    kind: ClassVar[str] = "night.planned"
    opens_ns: int
    closes_ns: int
    hours: str = ""
    zone: str = ""


class NightOpened(Event, frozen=True):
    """Learning of what waits begins. `waiting`: how many examples. `until_ns`: this catches up a night that was
    missed, until then at most (nanoseconds since 1970); 0: these are the hours themselves."""

    kind: ClassVar[str] = "night.opened"
    waiting: int
    until_ns: int = 0


class NightClosed(Event, frozen=True):
    """Examples that are not learned yet wait for the next night. `steps` were made in this one."""

    kind: ClassVar[str] = "night.closed"
    steps: int
    waiting: int
