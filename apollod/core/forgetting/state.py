"""State: open requests to forget, and the intent under way."""

from typing import Literal

import msgspec

from apollod.core.training.learned import Learned


class Wish(msgspec.Struct, frozen=True, gc=False):
    """A request to forget an example: requester and reason."""

    by: str
    reason: str


class UnderWay(msgspec.Struct):
    """An intent to forget. `steps` learned the examples of `wishes`, in their order. `phase`: back, the weights go back
    to step `to`; again, the other steps are repeated; stuck, they cannot go back, for the `reason`."""

    number: int
    wishes: dict[str, Wish]
    steps: tuple[int, ...]
    to: int
    again: tuple[Learned, ...]
    since_ns: int
    phase: Literal["back", "again", "stuck"] = "back"
    reason: str = ""
    repeated: int = 0

    @property
    def longest_ago(self) -> tuple[str, ...]:
        """Examples that the first of the steps learned."""
        return tuple(example for example, step in zip(self.wishes, self.steps, strict=True) if step == self.steps[0])


class ForgettingState(msgspec.Struct):
    """Open requests and refusals, by example id."""

    wanted: dict[str, Wish] = {}
    under_way: UnderWay | None = None
    refused: dict[str, str] = {}
    """why they stay learned"""
    number: int = 0
    """number of the last intent"""
    forgotten: int = 0
    """examples, over the life of the journal"""
