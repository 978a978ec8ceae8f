"""Splits an English statement into subject, verb and the rest."""

import re
from typing import NamedTuple

from apollod.curation.lessons.english_verbs import BE, FORMS, MODALS, Verb

WORDS_MAX, _SUBJECT_MAX = 60, 14
_SMALL = frozenset(
    "the a an my our your his her its their this that these those all every each no some most many we you they he "
    "she it".split()
)
_PARTICIPLE = re.compile(r"\w+(?:ed|en)|made|built|held|sold|led|run|known|sung|won|found")
_ARTICLES = frozenset("the a an".split())
_NOUN_BEFORE = frozenset("of the a an for his her its their my our your in".split())
_JOINS = frozenset("and which that who".split())
_ORDERS = frozenset("always please do don't never let let's use make write answer speak say".split())
_CONTRACTED = ((r"\b([Cc])an(?:no|['’])t\b", r"\1an not"), (r"\b([Ww])on['’]t\b", r"\1ill not"), (r"n['’]t\b", " not"))


class Clause(NamedTuple):
    """`base`: "be" for all its forms. `do`: the auxiliary for a question: does, do or did; "is" and "can" are their
    own."""

    subject: str
    verb: str
    base: str
    do: str
    rest: str


def clause_in(sentence: str) -> Clause | None:
    """The clause of a sentence without its full stop; None where no verb is known."""
    for contracted, written in _CONTRACTED:
        sentence = re.sub(contracted, written, sentence)
    words = sentence.split()
    if not 2 < len(words) <= WORDS_MAX or words[0].lower() in _ORDERS:
        return None
    words, behind = _fronted(words)
    if (at := _verb_at(words)) is None:
        return _beside(words)
    subject = re.sub(r",? (?:that|which|who)$", "", _begun(words[:at]))
    if subject.endswith(","):  # "Quillon, made by Marlow"
        return Clause(subject[:-1] + behind, "is", "be", "is", " ".join(words[at:]))
    base, do = _known(words[at])
    return Clause(subject + behind, words[at], base, do, " ".join(words[at + 1 :]))


def _begun(words: list[str]) -> str:
    """The words as part of a sentence: an article or pronoun at the beginning loses its capital."""
    return " ".join([words[0].lower() if words[0].lower() in _SMALL else words[0], *words[1:]])


def _beside(words: list[str]) -> Clause | None:
    """ "Orland's capital, Velmar" as a clause with "is"."""
    before, comma, after = _begun(words).partition(", ")
    owned = comma and re.search(r"['’]s? [a-z]+$", before)
    return Clause(before, "is", "be", "is", after) if owned else None


def _fronted(words: list[str]) -> tuple[list[str], str]:
    """The words without a fronted place, and that place: "In Joensuu, the language is Finnish" is read as "the language
    in Joensuu is Finnish"."""
    if words[0] in ("In", "At", "On"):
        for at, word in enumerate(words[:6]):
            if word.endswith(",") and len(words) > at + 3:
                return words[at + 1 :], " ".join(["", words[0].lower(), *words[1:at], word.rstrip(",")])
    return words, ""


def _verb_at(words: list[str]) -> int | None:
    """Index of the first verb, or of a later form of "be" if the first is a participle or looks like a noun."""
    places = [at for at in range(1, min(len(words), _SUBJECT_MAX)) if _is_verb(words[at], words[at - 1])]
    if not places:
        return None
    first = places[0]
    of_subject = _PARTICIPLE.fullmatch(words[first]) or FORMS.get(words[first], Verb("", "")).do == "do"
    for at in places[1:] if of_subject or words[first - 1] in _NOUN_BEFORE else ():
        if words[at] in BE and not (words[at - 1].endswith(",") or words[at - 1] in _JOINS):
            return at
    return first


def _is_verb(word: str, before: str) -> bool:
    if before.lower() in _ARTICLES:  # "the house", "a cook"
        return False
    if word == "am":  # "3 am"
        return before == "I"
    return word in BE or word in MODALS or word in FORMS


def _known(verb: str) -> Verb:
    if verb in BE:
        return Verb("be", verb)
    return Verb(verb, verb) if verb in MODALS else FORMS[verb]
