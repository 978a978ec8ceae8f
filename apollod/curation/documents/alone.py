"""Rewrites sentences of a section so that each can be understood alone: resolves "it", completes "the port". Pure.

The subject of a sentence is read from its form. Where two readings remain, the sentence is left as it is.
"""

import re
from collections.abc import Iterable, Iterator

from apollod.curation.documents.document_sections import Block, Section
from apollod.curation.lessons.asked_for import sentences_in
from apollod.curation.lessons.english import BASES, BE, FORMS, MODALS, Verb, clause_in, third
from apollod.curation.lessons.matching import ARTICLES

_CAPITAL = r"[A-ZÀ-ÖØ-Þ0-9](?:[\w'’&-]|\.(?=\w))*"
_NAME = rf"(?:[Tt]he )?[A-ZÀ-ÖØ-Þ](?:[\w'’&-]|\.(?=\w))*(?: (?:(?:of|de|von|van|der|la|the|del) )?{_CAPITAL})*"
_KIND = r"(?:[a-z-]+ ){0,3}?"
_NAMED_KIND = re.compile(rf"\b(?:an?|the|our|one) {_KIND}([a-z-]+), (?:called |named )?({_NAME})(?=[,.;]|$)")
_IS_A = re.compile(
    rf"^({_NAME}) (?:is|was) (?:an?|the|our) {_KIND}([a-z-]+)(?=[,.;]|$| (?:of|in|on|at|for|by|that|which|who)\b)"
)
_IS_NAME = re.compile(rf"^[Tt]he {_KIND}([a-z-]+)(?: of .+)? (?:is|was)(?: called| named)? ({_NAME})$")
_APPOSED = re.compile(rf"^(?:The|Our|Its|Her|His|Their) {_KIND}[a-z-]+, ({_NAME}), ")
_BESIDE = re.compile(r"^([^,]{3,60}), ((?:an?|the) [^,]{3,80}), (?=([a-z]+)\b)(.+)$")
_AND = re.compile(r",? (?:and|but) ")
_WHO = re.compile(rf"({_NAME}), (?:which|who) ([^,]+)")
_PRONOUN = re.compile(r"^(?:It|He|She|They)\b")
_OWNED = re.compile(r"^(?:Its|His|Her|Their) ")
_OURS = re.compile(r"^(?:Our|My) ")
_COUNT = r"(?:\d+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_COUNTS = re.compile(rf"^(.+? )({_COUNT} [a-z]+) and ({_COUNT} [a-z]+.*)$")
_KEY = re.compile(r"([^:]{1,60}?)\s*(?::|\s[–—-])\s+(\S.*)")
_DAYS = re.compile(r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?\b")
_OPEN_ENDS = ("by", "at", "in", "on", "from", "to", "with", "for", "of")
_BEHIND = re.compile(r" (?:of|at|in|on|for|near|from) ")
_ADVERBS = frozenset("also still always usually often now then only just never".split())
_PRONOUNS = frozenset("it he she they its his her their".split())
_GENERIC = re.compile(
    r"^(?:Notes|Facts|All|Handbook|Guide|Manual|Documentation|Welcome|Introduction) (?:on|about|of|for|to) ", re.I
)


class Reader:
    """Reads the sections of one document in order."""

    def __init__(self, topic: str) -> None:
        """`topic`: the subject of the document, see `topic_of`."""
        self._topic = topic
        self._kinds = {_head(topic): topic}
        """name by the kind of thing that it is: "boat" of "a boat, the Maribel Crane" """
        self._about = topic
        """subject of the section"""
        self._focus = topic
        """referent of "it" """
        self._title = ""

    def sentences(self, section: Section) -> Iterator[tuple[str, list[str]]]:
        """Each sentence, item and row of the section, with the simple sentences derived from it."""
        self._title = section.titles[-1] if len(section.titles) > 1 else ""
        named = self._title if _is_title_name(self._title, section.blocks) else self._topic
        self._focus = self._about = self._kinds.get(_head(self._title), named)
        for block in section.blocks:
            if block.kind == "row":
                yield " | ".join(block.cells), list(self._of_row(block))
            elif block.kind == "item" and (pair := _KEY.fullmatch(block.text)) and len(pair[1].split()) <= 6:
                yield block.text, list(self._of_pair(pair[1], pair[2].rstrip(" .;,")))
            else:
                for sentence in sentences_in(block.text):
                    yield sentence, list(self._of_sentence(sentence))

    def _of_row(self, row: Block) -> Iterator[str]:
        """Sentences about the first cell of a row, one for each other cell."""
        first = row.cells[0] if row.cells else ""
        for head, cell in zip(row.heads[1:], row.cells[1:], strict=False):
            if first and head and cell:
                of = self._qualified(first if _is_name(first) else f"the {_small(first)}")
                last = head.split()[-1].lower()
                yield (
                    f"{_large(of)} is {_small(head)} {cell}."
                    if last in _OPEN_ENDS
                    else f"The {_small(head)} of {of} is {cell}."
                )

    def _of_pair(self, key: str, value: str) -> Iterator[str]:
        """Sentences for a list item such as "Port: 7341", about the subject of the section."""
        plural = key.endswith("s") and not key.endswith("ss")
        if value.split()[0] in BASES and plural:
            yield f"{_large(self._qualified(_small(key)))} {value}."
        elif clause_in(value) is not None and len(value.split()) > 3:
            yield from self._of_sentence(f"{value}.")
        elif self._about and _DAYS.match(key) and self._title:
            yield f"The {_small(self._title)} of {self._about} on {key} are {value}."
        elif self._about:
            yield f"The {_small(key)} of {self._about} {'are' if plural else 'is'} {value}."

    def _of_sentence(self, sentence: str) -> Iterator[str]:
        """The simple sentences within one, each with an explicit subject."""
        bare = " ".join(sentence.split()).rstrip(" .!;,")
        if sentence.rstrip().endswith("?"):
            return
        self._kinds |= {kind: name for kind, name in _NAMED_KIND.findall(bare)}
        if is_a := _IS_A.match(bare):
            self._kinds.setdefault(is_a[2], is_a[1])
        self._about = self._kinds.get(_head(self._title), self._about)
        for part in _parts(bare):
            yield from self._simple(_large(part))
        introduced = _NAMED_KIND.search(bare)
        if introduced and introduced.end() == len(bare):
            self._focus = introduced[2]

    def _simple(self, sentence: str) -> Iterator[str]:
        """The sentence with its subject resolved, and its appositions and relative clauses as separate sentences."""
        if (beside := _BESIDE.match(sentence)) and _is_verb(beside[3]):
            yield f"{self._resolved(f'{beside[1]} is {beside[2]}')}."
            sentence = f"{beside[1]} {beside[4]}"
        named = self._resolved(sentence)
        for name, said in _WHO.findall(named):
            if _is_verb(said.split()[0]):
                yield f"{_large(name)} {said}."
                named = named.replace(f", which {said}", "").replace(f", who {said}", "").rstrip(" ,")
        clause = clause_in(named)
        if clause is None:
            yield f"{named}."
            return
        is_name = _IS_NAME.match(named)
        self._focus = is_name[2] if is_name else clause.subject
        if is_name:
            self._kinds.setdefault(is_name[1], is_name[2])
        for one in _verbs(named, _large(clause.subject)):
            counts = _COUNTS.match(one)
            yield from (f"{counts[1]}{counts[n]}." for n in (2, 3)) if counts else (f"{one}.",)

    def _resolved(self, sentence: str) -> str:
        """The sentence with a name for a pronoun at its beginning, and a completed subject ("the port of Quillon")."""
        if self._focus:
            sentence = _PRONOUN.sub(lambda _: _large(self._focus), sentence)
        if self._about:
            sentence = self._without_we(sentence)
        if appos := _APPOSED.match(sentence):
            sentence = f"{_large(appos[1])} {sentence[appos.end() :]}"
        clause = clause_in(sentence)
        if clause is None or not sentence.lower().startswith(clause.subject.lower()):
            return sentence
        subject, rest = sentence[: len(clause.subject)], sentence[len(clause.subject) :]
        if self._focus and _OWNED.match(subject):
            subject = f"The {_OWNED.sub('', subject)} of {self._focus}"
        elif self._about and _OURS.match(subject):
            subject = f"The {_OURS.sub('', subject)} of {self._about}"
        common = subject.split()[0] in ("The", "A", "An") or (subject.endswith("s") and len(subject.split()) == 1)
        return _large(self._qualified(_small(subject))) + rest if common else subject + rest

    def _without_we(self, sentence: str) -> str:
        """ "We talk to" as "Brennholt talks to"."""
        words = sentence.split()
        if len(words) < 3 or words[0] != "We" or not (words[1] in BASES | {"are"} or words[1] in MODALS):
            return sentence
        verb = "is" if words[1] == "are" else words[1] if words[1] in MODALS else third(words[1])
        return " ".join([_large(self._about), verb, *words[2:]])

    def _qualified(self, subject: str) -> str:
        """ "the port" as "the port of Quillon", "the boat" as the name of the only one. A subject with a name stays."""
        words = subject.split()
        if not self._about or _is_name(subject) or not 1 <= len(words) <= 8 or self._about in subject:
            return subject
        if words[0] == "the" and len(words) == 2 and (name := self._kinds.get(words[1])):
            return name
        return f"{subject} of {self._about}"


def _parts(sentence: str) -> Iterator[str]:
    """The parts of a sentence that have a subject of their own."""
    for part in sentence.split("; "):
        at = 0
        for found in _AND.finditer(part):
            before, behind = part[at : found.start()], part[found.end() :]
            first = behind.split()[:1] or [""]
            joined = found[0].startswith(",") or first[0] in _PRONOUNS
            own = joined and not _is_verb(first[0]) and first[0] not in _ADVERBS
            if own and clause_in(before) is not None and _has_subject(behind):
                yield before
                at = found.end()
        yield part[at:]


def _has_subject(text: str) -> bool:
    clause = clause_in(text)
    return clause is not None and len(clause.subject.split()) <= 6 and clause.subject.split()[0] not in _OPEN_ENDS


def _verbs(sentence: str, subject: str) -> Iterator[str]:
    """ "It was built in 1911 and has two domes" as two sentences with the same subject."""
    at, begun = 0, ""
    for found in _AND.finditer(sentence):
        verb = (sentence[found.end() :].split()[:1] or [""])[0]
        if _is_verb(verb) and len(sentence[at : found.start()].split()) > 2:
            yield begun + sentence[at : found.start()]
            at, begun = found.end(), f"{subject} "
    yield begun + sentence[at:]


def _is_verb(word: str) -> bool:
    """True for a form that is rarely a noun: "has", "runs" and "was", not "run"."""
    return word in BE or word in MODALS or FORMS.get(word, Verb("", "do")).do != "do"


def _is_name(text: str) -> bool:
    """True if the text contains a name."""
    return any(word[:1].isupper() for word in text.split())


def _is_title_name(title: str, blocks: Iterable[Block]) -> bool:
    """True if a heading is a name that occurs in the section below it."""
    words = title.split()
    return bool(words) and all(word[:1].isupper() for word in words) and any(
        re.search(rf"\b{re.escape(title)}\b", one.text) for one in blocks
    )  # fmt: skip


def _head(text: str) -> str:
    """The noun of a name or title: "station" of "the ferry station at Brennholt"."""
    return (_BEHIND.split(text)[0].lower().split() or [""])[-1]


def _large(text: str) -> str:
    return text[:1].upper() + text[1:]


def topic_of(titles: tuple[str, ...], name: str) -> str:
    """The subject of a document: from its first heading, else its file name without the suffix."""
    title = titles[0] if titles else ""
    title = _GENERIC.sub("", title).rstrip(" .:!?")
    if not title:
        title = re.sub(r"\.\w+$", "", name).replace("-", " ").replace("_", " ")
    return _small(title) if title.split()[:1] in (["The"], ["A"], ["An"]) else title


def _small(text: str) -> str:
    """The text with a small first letter, unless it begins with a name."""
    first, *rest = text.split() or [""]
    name = first[1:] != first[1:].lower() or any(word[:1].isupper() for word in rest)
    return text if name and first.lower() not in ARTICLES else text[:1].lower() + text[1:]
