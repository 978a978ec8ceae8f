"""Comparisons of engine and trainer, as the journal tells them."""

import msgspec

from apollod.core.alignment.events import AlignmentMeasured, AlignmentStarted


class AlignmentState(msgspec.Struct):
    """The comparison that is open, and the newest result."""

    open: AlignmentStarted | None = None
    opened_ns: int = 0
    """when the last one began"""
    beside: bool = False
    """the open one took too long: steps run beside it"""
    steps_before: int = 0
    """steps that had begun when the last comparison began"""
    count: int = 0
    """comparisons so far"""
    doubted: bool = False
    """the last one found a difference that chance or a step may have made"""
    measured: AlignmentMeasured | None = None
    """the newest result"""
    version: int = -1
    """version at which this trainer and engine were last compared; -1: not yet"""
    whole_version: int = -1
    """the same for comparisons over the whole text"""
    past: list[float] = msgspec.field(default_factory=list)
    """means of the newest comparisons over the whole text after which training went on"""
    past_probe: str = ""
    """digest of the token ids of these comparisons"""
    looked: list[int] = msgspec.field(default_factory=list)
    """versions at which the tensors of this trainer were compared"""
    same: int | None = None
    """the newest version at which all tensors were equal"""

    @property
    def comparing(self) -> bool:
        """True if the open comparison is at its second stage: log-probabilities are known, tensors are compared."""
        return self.open is not None and self.measured is not None and self.open.number == self.measured.number

    @property
    def differs(self) -> bool:
        """True if the open comparison found a difference that is being located."""
        return self.comparing and self.measured is not None and not self.measured.aligned

    @property
    def waited_for(self) -> bool:
        """True if a comparison is open that a step has to wait for."""
        return self.open is not None and (self.differs or not (self.beside or self.open.gives_way))
