"""What a lesson asks: the ways in which the same thing is said, and the answer to each."""

import msgspec


class Given(msgspec.Struct, frozen=True, gc=False):
    """What a person taught: a statement, or a question and its answer, or all three."""

    statement: str = ""
    question: str = ""
    answer: str = ""


class Wording(msgspec.Struct, frozen=True, gc=False):
    """One way to ask for it."""

    prompt: str
    """the user's message"""
    answer: str
    """what an answer has to say, short and exact: `curation.lessons.matching.matches`"""
    how: str
    """how it arose: "given", "imagined", or the id of a frame"""
    says: str = ""
    """a whole answer, which is learned; empty: `answer` is"""


class Worded(msgspec.Struct, frozen=True, gc=False):
    """All wordings of a lesson. No prompt is in both; none holds its answer."""

    question: str
    """what is asked, as it was given or made from the statement"""
    answer: str
    """short and exact"""
    key: str
    """the same for lessons that answer the same question: of two with other answers one replaces the other"""
    practice: tuple[Wording, ...]
    held_out: tuple[Wording, ...]
    dropped: dict[str, int] = {}
    """wordings that were left out, by reason: "near-copy", "leak", "off" (names nothing of the lesson), "answer" (says
    another one), "told" (the told model misses it)"""
