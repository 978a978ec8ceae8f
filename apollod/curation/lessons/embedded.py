"""Reorders an English question: "Where is the Archive located?" becomes "where the Archive is located" within a
sentence, and "The Archive is located where?"."""

import re
from typing import NamedTuple

from apollod.curation.lessons.english_verbs import BASES, BE, FORMS, MODALS, PASTS, third

_ASKS = re.compile(
    r"(?:(?:at|by|for|from|in|of|on|to|under|with|until|since)\s)?(?:who|whom|whose|what|which|when|where|why|how)\b",
    re.I,
)
_AUXILIARIES = BE | MODALS | {"does", "do", "did", "has", "have", "had"}
_PARTICIPLES = frozenset(
    "born made built held known found written sung spoken drawn sold won led taught worn run set based".split()
)
_PREPOSITIONS = frozenset("from in on at by to of for with about like under behind".split())
_OPENERS = frozenset(
    "the a an my our your his her its their this that these those it he she they we i you there first second".split()
)
_WORD_MAX = 40
_KIND = 5
"""most words of the question phrase: "how many of the old legs" """


class Embedded(NamedTuple):
    """Words of a question in the order of a statement: `asked` (question phrase, "in which city"), `subject`, `verb`
    and the `rest`. With an empty subject, the question phrase is the subject."""

    asked: list[str]
    subject: list[str]
    verb: list[str]
    rest: list[str]


def clause_of(question: str) -> str:
    """The question as a clause within a sentence; empty if no rule fits. It must be a single English sentence."""
    found = _embedded(question)
    return _joined(*found) if found is not None else ""


def reordered(question: str) -> tuple[str, ...]:
    """The question with its question phrase at the end, "Quillon listens on what port?", and, if that names a kind of
    thing, as a command: "Name the port that Quillon listens on."; empty if no rule fits."""
    found = _embedded(question)
    if found is None:
        return ()
    asked, subject, verb, rest = found
    orders = list[str]()
    if subject and asked not in (["why"], ["how"]):
        orders.append(_joined([subject[0][0].upper() + subject[0][1:], *subject[1:]], verb, rest, asked) + "?")
    at = next((at for at, word in enumerate(asked) if word in ("what", "which")), None)
    if at is not None and (kind := asked[at + 1 :]) and kind[0] not in _PREPOSITIONS:
        link = [*asked[:at], "which"] if at else ["that"]
        orders.append(_joined(["Name", "the"], kind, link, subject, verb, rest) + ".")
    return tuple(orders)


def _embedded(question: str) -> Embedded | None:
    text = question.strip().rstrip("?").strip()
    if not _ASKS.match(text) or re.search(r"[.!?;:\n]", text) or len(words := text.split()) > _WORD_MAX:
        return None
    words[0] = words[0].lower()
    at = next((at for at, word in enumerate(words[1 : _KIND + 2], 1) if word in _AUXILIARIES), 0)
    if not at:  # "who owns the mill"
        verb = next((at for at, word in enumerate(words) if at and word in FORMS), 0)
        return (
            Embedded(words[:verb], [], words[verb : verb + 1], words[verb + 1 :])
            if verb
            else Embedded(words, [], [], [])
        )
    asked, auxiliary, rest = words[:at], words[at], words[at + 1 :]
    if not rest:
        return None
    if auxiliary in BE and _of_subject(asked, rest[0]):  # "which designer was responsible for it"
        return Embedded(asked, [], [auxiliary], rest)
    if auxiliary in BE:
        return Embedded(asked, *_around_be(auxiliary, rest))
    stop = next((at for at, word in enumerate(rest[1:], 1) if word in BASES and rest[at - 1] not in _OPENERS), 0)
    if not stop:
        return None
    return Embedded(asked, rest[:stop], _verb(auxiliary, rest[stop]), rest[stop + 1 :])


def _of_subject(asked: list[str], after: str) -> bool:
    """True if the question asks for the subject itself. Then neither a name nor an article follows "is"."""
    if len(asked) == 1:
        return asked[0] == "which" or after in _PREPOSITIONS
    return asked[0] in ("which", "what", "whose") and after.islower() and after not in _OPENERS and "'" not in after


def _around_be(be: str, rest: list[str]) -> tuple[list[str], list[str], list[str]]:
    """(subject, verb, rest) of the words around a form of "be"."""
    begin = len(rest)
    if "a" in rest[1:] or "an" in rest[1:]:  # "is the Kid a character"
        begin = next(at for at, word in enumerate(rest) if at and word in ("a", "an"))
    elif begin > 1 and rest[-1] in _PREPOSITIONS:
        begin -= 2 if begin > 2 and rest[-2].islower() else 1  # "famous for"
    elif begin > 1 and (rest[-1] in _PARTICIPLES or (rest[-1].endswith("ed") and rest[-1].islower())):
        begin -= 1
    return rest[:begin], [be], rest[begin:]


def _verb(auxiliary: str, base: str) -> list[str]:
    match auxiliary:
        case "does":
            return [third(base)]
        case "did":
            return [PASTS[base]]
        case "do":
            return [base]
        case _:
            return [auxiliary, base]


def _joined(*parts: list[str]) -> str:
    return " ".join(word for part in parts for word in part)
