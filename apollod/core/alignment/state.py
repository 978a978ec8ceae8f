"""Comparisons of engine and trainer, as the journal tells them."""

import msgspec

from apollod.core.alignment.events import AlignmentMeasured, AlignmentStarted


class AlignmentState(msgspec.Struct):
    """The comparison that is open, and the newest result."""

    open: AlignmentStarted | None = None
    opened_ns: int = 0
    """when the last one began"""
    measured: AlignmentMeasured | None = None
    """the newest one"""
    version: int = -1
    """version at which this trainer and engine were last compared; -1: not yet"""
