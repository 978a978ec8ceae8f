"""The wordings of a lesson: the ways in which the same thing is asked, and the answer to each."""

import msgspec
from msgspec.structs import replace


class Given(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The lesson as a person gave it: a statement, or a question and its answer, or all three."""

    statement: str = ""
    question: str = ""
    answer: str = ""
    document: str = ""
    """name of the document that says it; empty: it was given alone"""
    section: str = ""
    """the part of that document that says it, which is told with it"""

    def says_the_same(self, other: "Given") -> bool:
        """True if the two teach the same, wherever each was read."""
        return replace(self, document="", section="") == replace(other, document="", section="")


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
    neighbours: tuple[str, ...] = ()
    """the question about other subjects: what the model says to it is held while the lesson is practised"""
    also: tuple[str, ...] = ()
    """keys of its other questions, such as "Who is the owner of it?" beside "Who owns it?"; see `key`"""
    dropped: dict[str, int] = {}
    """wordings that were left out, by reason: "near-copy", "leak", "off" (names nothing of the lesson), "answer" (says
    another one), "told" (the told model misses it)"""


def keys_of(worded: Worded | None) -> tuple[str, ...]:
    """Keys of all its questions; none where it was not worded yet."""
    return (worded.key, *worded.also) if worded is not None else ()
