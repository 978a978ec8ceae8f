"""Anchors, and how far the model has moved from each."""

import msgspec

from apollod.core.holding.events import AnchorWanted, Sort
from apollod.core.schedules import NO_FAILURE, Retry

SHIPPED_NAME = "shipped:"
"""with its line, from 1, the name of a prompt that ships"""
APPROVED_NAME = "approved:"
"""with its example, the name of an approved answer"""
NEIGHBOUR_NAME = "neighbour:"
"""with its prompt, the name of what the model says to a question of a lesson's form about something else"""


CONTRAST_NAME = "contrast:"
"""with its dream, the name of a good answer where a behaviour would be wrong"""
TOLD_NAME = "told:"
"""with its dream, the name of what a practice learned untold, under its instruction"""


class Anchor(msgspec.Struct, gc=False):
    """An answer of the model that steps hold, see `AnchorFrozen`. `digest` is empty until it is tokenised."""

    anchor: str
    sort: Sort
    wanted: str
    lesson: str = ""
    tokens: int = 0
    digest: str = ""
    moved: float | None = None
    """divergence when it was held last, nats a token; None: it was not held yet"""
    turn: int = 0
    """number of the step, of those that held something, that held it last"""
    question: str = ""
    """see `ExampleAccepted`"""
    example: str = ""
    pattern: str = ""


class HoldingState(msgspec.Struct):
    """The anchors, and what is known of freezing more of them."""

    anchors: dict[str, Anchor] = {}
    """by id, in the order in which they were frozen"""
    pending: dict[str, None] = {}
    """ids of those that were not tokenised yet"""
    wanted: dict[str, AnchorWanted] = {}
    """that are to be frozen, besides those that ship; by name"""
    renewed: dict[str, AnchorWanted] = {}
    """what known lessons say, to be frozen again when nothing waits; by name"""
    given: dict[str, str] = {}
    """newest answers of the served model to questions, that nobody approved yet: the example, by the question"""
    approved: dict[str, str] = {}
    """those that were approved and are to be frozen when nothing waits"""
    by_question: dict[str, str] = {}
    """anchors, besides those of lessons, by their questions"""
    stale: dict[str, str] = {}
    """ids of those that are held no more and were not retired yet, and why"""
    settled: dict[str, None] = {}
    """names of shipped prompts that are frozen, or cannot be"""
    open: tuple[str, ...] = ()
    """anchors that the running step holds"""
    turns: int = 0
    """steps that held something"""
    retry: Retry = NO_FAILURE
    """of questions that the engine did not answer"""
    error: str = ""
    """why none could be frozen when it was tried last"""
    unable: bool = False
    """does the engine not answer such questions, in this life of the daemon?"""
