"""Checks whether an answer contains the expected one."""

from collections.abc import Iterator, Sequence

from apollod.curation.lessons.answer_words import Words, plain_words, same_words

LONG = 9
"""words from which on an expected answer matches by most of its words, in any order"""
MOST = 0.8
"""share of its content words that must be there"""
SCOPE = 6
"""words that a negation covers"""
ANSWER_TOKENS = 64
"""room beside the expected answer: a model that knows it says it within these tokens"""

ARTICLES = frozenset(
    "a an the der die das den dem des ein eine einen einem einer le la les l un une el los las una".split()
)
NEGATIONS = frozenset(
    "not never no nor neither without cannot nobody none nicht nie niemals kein keine keinen keinem keiner keines "
    "pas jamais ni nunca jamas tampoco non nao 不 没 沒 非 別 别".split()
)
_INSTEAD = frozenset({"instead of", "rather than", "other than"})
_TURNS = frozenset("but although though sondern aber mais sino pero and und et y 而".split())
_NO_DENIAL = frozenset("only doubt problem question nur seulement solo".split())
_BE = frozenset("is are was were be ist sind war est sont es son era 是".split())
_WRONG = frozenset("wrong incorrect false untrue falsch faux falso incorrecto".split())
_YES = frozenset("yes yeah yep ja oui si да 是".split())
_NO = frozenset("no nope nein non нет 否".split())
_SMALL = ARTICLES | _BE | frozenset("of in on at by to for from with or been it its this that as".split())

_Place = tuple[int, int]


def matches(expected: str, said: str, not_these: Sequence[str] = ()) -> bool:
    """True if `said` holds the expected answer, does not deny it, and has none of `not_these` beside it.

    Case, accents, articles, punctuation and notations of numbers, dates and times do not count; words match whole: 7341
    is not in 17341. "Yes" and "no" are compared with the first of them in `said`. An expected answer of `LONG` words or
    more needs all its numbers and negations and most of its other words, in any order.
    """
    ways = [(words(expected), words(said), words) for words in (plain_words, same_words)]
    if not any(_passes(answer, text) for answer, text, _ in ways):
        return False
    return not any(_beside(words(one), answer, text) for answer, text, words in ways for one in not_these)


def tokens_of(expected: str) -> int:
    """Token limit of an answer with room for the expected one: as a rule, a token has at least one character."""
    return ANSWER_TOKENS + len(expected)


def holds(text: str, answer: str) -> bool:
    """True if the text contains the answer, denied or not."""
    return any(any(places(words(answer), words(text))) for words in (plain_words, same_words))


def places(answer: Words, text: Words) -> Iterator[_Place]:
    """Positions of the answer in a text, [begin, end): its words in a row, ignoring articles."""
    wanted, there = _core(answer), text.words
    for begin, word in enumerate(there if wanted else ()):
        if word != wanted[0]:
            continue
        at, found = begin + 1, 1
        while found < len(wanted) and at < len(there) and (there[at] == wanted[found] or there[at] in ARTICLES):
            found += there[at] == wanted[found]
            at += 1
        if found == len(wanted):
            yield begin, at


def _core(answer: Words) -> tuple[str, ...]:
    """The words without articles, except the last word: "vitamin A"."""
    last = len(answer.words) - 1
    return tuple(word for at, word in enumerate(answer.words) if word not in ARTICLES or at == last)


def _passes(answer: Words, said: Words) -> bool:
    core = _core(answer)
    if len(core) == 1 and core[0] in _YES | _NO:
        return _polarity(said) == (core[0] in _YES)
    if len(core) >= LONG:
        return _mostly(core, set(said.words))
    return any(not _denied(place, said) for place in places(answer, said))


def _polarity(said: Words) -> bool | None:
    """True for yes, False for no, by the first such word; without one, a negation is no. None: neither."""
    for word in said.words:
        if word in _YES | _NO:
            return word in _YES
    return False if NEGATIONS & set(said.words) else None


def _mostly(core: Sequence[str], said: set[str]) -> bool:
    needed = {word for word in core if word in NEGATIONS or any(map(str.isdigit, word))}
    content = {word for word in core if word not in _SMALL}
    return needed <= said and len(content & said) >= MOST * len(content)


def _beside(other: Words, answer: Words, said: Words) -> bool:
    """True if another answer stands outside of the expected one, not denied."""
    expected = list(places(answer, said))
    return any(
        not any(begin <= at and end <= stop for begin, stop in expected) and not _denied((at, end), said)
        for at, end in places(other, said)
    )


def _denied(place: _Place, said: Words) -> bool:
    return _denied_before(place[0], said) or _denied_after(place[1], said)


def _denied_before(begin: int, said: Words) -> bool:
    words, ends = said
    for at in range(begin - 1, max(-1, begin - 1 - SCOPE), -1):
        if ends[at] or words[at] in _TURNS:
            return False
        if " ".join(words[at : at + 2]) in _INSTEAD:
            return True
        if words[at] in NEGATIONS and words[at + 1] not in _NO_DENIAL:
            return not (words[at] == "no" and words[at + 1].isdigit())  # "room no 12"
    return False


def _denied_after(end: int, said: Words) -> bool:
    """True for "7341 is wrong", "7341 isn't it"; not for "7341, not 80"."""
    words, ends = said
    after = words[end : end + 2]
    return len(after) == 2 and not ends[end - 1] and after[0] in _BE and after[1] in NEGATIONS | _WRONG
