"""Inputs: the time of the next night becomes known."""

from apollod.core.kernel.input import Input


class NightKnown(Input, frozen=True):
    """The present or next hours of the configuration, in nanoseconds since 1970; without `hours` there are none."""

    opens_ns: int = 0
    closes_ns: int = 0
    hours: str = ""
    zone: str = ""
