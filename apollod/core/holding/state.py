"""State: anchors, and the model's divergence from each."""

import msgspec

from apollod.core.holding.events import AnchorWanted, Sort
from apollod.core.schedules import NO_FAILURE, Retry

SHIPPED_NAME = "shipped:"
"""prefix, before its line number from 1, of the name of a shipped prompt"""
APPROVED_NAME = "approved:"
"""prefix, before its example, of the name of an approved answer"""
NEIGHBOUR_NAME = "neighbour:"
"""prefix, before its prompt, of the name of an answer to a question of a lesson's form about something else"""


CONTRAST_NAME = "contrast:"
"""prefix, before its dream, of the name of a good answer where a behaviour would be wrong"""
TOLD_NAME = "told:"
"""prefix, before its dream, of the name of an answer that a practice learned untold, under its instruction"""


class Anchor(msgspec.Struct, gc=False):
    """An answer of the model that steps hold, see `AnchorFrozen`. `digest` is empty until it is tokenised."""

    anchor: str
    sort: Sort
    wanted: str
    lesson: str = ""
    tokens: int = 0
    digest: str = ""
    moved: float | None = None
    """divergence when it was last held, nats a token; None: not held yet"""
    turn: int = 0
    """number, among steps that held anchors, of the step that last held it"""
    question: str = ""
    """see `ExampleAccepted`"""
    example: str = ""
    pattern: str = ""


class HoldingState(msgspec.Struct):
    """The anchors, and the state of freezing more of them."""

    anchors: dict[str, Anchor] = {}
    """by id, in the order in which they were frozen"""
    pending: dict[str, None] = {}
    """ids of those that were not tokenised yet"""
    wanted: dict[str, AnchorWanted] = {}
    """anchors to freeze besides those that ship; by name"""
    renewed: dict[str, AnchorWanted] = {}
    """answers of known lessons, to be frozen again when nothing waits; by name"""
    given: dict[str, str] = {}
    """example by question, for the newest answers of the served model that are not approved yet"""
    approved: dict[str, str] = {}
    """approved ones among these, to be frozen when nothing waits"""
    by_question: dict[str, str] = {}
    """anchor by question, except for those of lessons"""
    stale: dict[str, str] = {}
    """anchors no longer held that were not retired yet: reason by id"""
    settled: dict[str, None] = {}
    """names of shipped prompts that are frozen, or cannot be"""
    open: tuple[str, ...] = ()
    """anchors that the running step holds"""
    turns: int = 0
    """number of steps that held anchors"""
    retry: Retry = NO_FAILURE
    """of questions that the engine did not answer"""
    error: str = ""
    """why the last attempt to freeze failed"""
    unable: bool = False
    """the engine cannot answer such questions in this life of the daemon"""
