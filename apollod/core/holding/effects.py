"""Effects of holding: freeze an anchor, have it tokenised."""

from typing import ClassVar

from apollod.core.dreams.scenario import Turn
from apollod.core.holding.events import Sort
from apollod.core.kernel.effect import Effect
from apollod.core.surroundings import NOTHING, Surrounding


class FreezeAnchor(Effect, frozen=True):
    """Have the served model answer, with its distribution at each token; answered by `AnchorAnswered` or
    `AnchorCallFailed`. Without a `prompt`: use the shipped prompt named `wanted`, or the question of the `example`
    whose answer was approved. `answer`, `around`, `system`, `told`: see `AnchorWanted`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("wanted",)
    wanted: str
    sort: Sort = "general"
    prompt: tuple[Turn, ...] = ()
    answer: str = ""
    example: str = ""
    around: Surrounding = NOTHING
    system: str = ""
    told: str = ""


class EncodeAnchors(Effect, frozen=True):
    """Have the trainer tokenise these anchors; answered by `EncodeDone`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("anchors",)
    anchors: tuple[str, ...]
