"""The wordings of a lesson: different questions for the same fact, and the answer to each."""

import msgspec


class Wording(msgspec.Struct, frozen=True, gc=False):
    """One question about it."""

    prompt: str
    """the user's message"""
    answer: str
    """short, exact text that an answer has to contain: `curation.lessons.matching.matches`"""
    how: str
    """its origin: "given", "imagined", or the id of a frame"""
    says: str = ""
    """a whole answer to learn; empty: `answer` is learned"""


class Worded(msgspec.Struct, frozen=True, gc=False):
    """All wordings of a lesson. No prompt is in both lists; none contains its answer."""

    question: str
    """the question, as given or made from the statement"""
    answer: str
    """short and exact"""
    key: str
    """key of the question: of two lessons with the same key and different answers one replaces the other"""
    practice: tuple[Wording, ...]
    held_out: tuple[Wording, ...]
    neighbours: tuple[str, ...] = ()
    """the question about other subjects: the model's answers to them are held while the lesson is practised"""
    also: tuple[str, ...] = ()
    """keys of its other questions, such as "Who is the owner of it?" beside "Who owns it?"; see `key`"""
    dropped: dict[str, int] = {}
    """wordings that were left out, by reason: "near-copy", "leak", "off" (not about the lesson), "answer" (it has
    another answer), "told" (the told model fails it)"""


def keys_of(worded: Worded | None) -> tuple[str, ...]:
    """Keys of all its questions; none if it is not worded yet."""
    return (worded.key, *worded.also) if worded is not None else ()
