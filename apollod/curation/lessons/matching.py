"""Compares answers and wordings by their words: tells whether an answer contains the expected one, and which wordings
are worthless: near copies of a practised one, and those that contain their answer.

Case, accents, punctuation and notations of numbers, dates and times do not count.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from apollod.core.facts.lessons.events import Wording
from apollod.curation.lessons.english import stem

# --- words ------------------------------------------------------------------------------------------------------------

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff"
_TOKEN = re.compile(
    rf"(?<![\w.])-[0-9]+(?:[.,:/-][0-9]+)*|[0-9]+(?:[.,:/-][0-9]+)*(?:st|nd|rd|th)?(?!\w)|[{_UNSPACED}]|[^\W{_UNSPACED}]+[+#]*|[%$€£¥°]|[.,;:!?()\n。，、；：！？…—–]"
)
_BREAKS = frozenset(".,;:!?()\n。，、；：！？…—–")
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ı": "i", "’": "'", "‘": "'", "ʼ": "'", "`": " ", "*": " "})
_CURRENCY = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
_COINS = {"dollars": "dollar", "euros": "euro", "pounds": "pound", "usd": "dollar", "eur": "euro", "gbp": "pound"}
_UNITS = dict(zip("two three four five six seven eight nine".split(), "23456789", strict=True))
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBERS = {"zero": "0", **_UNITS} | {word: str(10 + at) for at, word in enumerate(_TEENS)}
_NUMBERS |= {word: str(20 + 10 * at) for at, word in enumerate(_TENS)}
_MONTHS = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "januar februar marz april mai juni juli august september oktober november dezember",
        "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    )
    for number, name in enumerate(names.split(), 1)
}
_GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_DOTTED = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?![0-9.,][0-9])")
_SPACED = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?: [0-9]{3})+(?![0-9])")
_DECIMAL = re.compile(r"(?<![0-9.,])([0-9]+),([0-9]{1,2})(?![0-9,])")
_HALF_DAY = re.compile(r"(?<![0-9:.])([0-9]{1,2})(?::([0-9]{2}))?\s?([ap])\.?m\b\.?")
_CLOCK = re.compile(r"(?<![0-9:.])([0-9]):([0-9]{2})(?![0-9:])")
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY_FIRST = re.compile(
    rf"(?<![0-9])([0-9]{{1,2}})(?:st|nd|rd|th|er|\.)?\s(?:of\s|de\s)?({_MONTH})\.?,?\s(?:de\s)?([0-9]{{4}})\b"
)
_MONTH_FIRST = re.compile(rf"\b({_MONTH})\.?\s([0-9]{{1,2}})(?:st|nd|rd|th)?,?\s([0-9]{{4}})\b")


class Words(NamedTuple):
    """`ends`: true for a word at the end of a clause."""

    words: tuple[str, ...]
    ends: tuple[bool, ...]


def _date(day: str, month: str, year: str) -> str:
    return f"{year}-{_MONTHS[month]:02d}-{int(day):02d}"


def _time(match: re.Match[str]) -> str:
    hour, minutes, half = match.groups()
    return f"{int(hour) % 12 + 12 * (half == 'p'):02d}:{minutes or '00'}"


def _joined(match: re.Match[str]) -> str:
    return re.sub(r"[,. ]", "", match.group())


_ALIKE: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_DAY_FIRST, lambda match: _date(match[1], match[2], match[3])),
    (_MONTH_FIRST, lambda match: _date(match[2], match[1], match[3])),
    (_HALF_DAY, _time),
    (_CLOCK, lambda match: f"0{match.group()}"),
    (_GROUPED, _joined),
    (_SPACED, _joined),
    (_DOTTED, _joined),
    (_DECIMAL, lambda match: f"{match[1]}.{match[2]}"),
)


def plain_words(text: str) -> Words:
    """The words without normalising numbers, dates and times."""
    return _words(_folded(text))


def same_words(text: str) -> Words:
    """The words with numbers, dates, times and sums of money in one notation: 7,341 is 7341, seven is 7, "3 March 2021"
    is 2021-03-03, "9 am" is 09:00."""
    folded = _folded(text)
    for pattern, written in _ALIKE:
        folded = pattern.sub(written, folded)
    found = _words(folded)
    return Words(*zip(*_numbers(found), strict=True)) if found.words else found


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS)
    kept, base = list[str](), ""
    for sign in unicodedata.normalize("NFD", text):
        if unicodedata.category(sign) != "Mn":
            base = sign
        elif base < "\u0250":  # an accent of a Latin letter; marks of other scripts are letters
            continue
        kept.append(sign)
    folded = unicodedata.normalize("NFC", "".join(kept))
    return re.sub(r"n't\b", " not", folded).replace("'", " ")


def _words(folded: str) -> Words:
    words, ends = list[str](), list[bool]()
    for token in _TOKEN.findall(folded):
        if token in _BREAKS:
            if ends:
                ends[-1] = True
        elif word := token.strip("_"):
            words.append(word)
            ends.append(False)
    return Words(tuple(words), tuple(ends))


def _numbers(found: Words) -> Iterator[tuple[str, bool]]:
    """Number words as digits, "twenty-five" as one word; sums of money as number, then currency."""
    at, all_ = 0, list(zip(*found, strict=True))
    while at < len(all_):
        word, ends = all_[at]
        after = all_[at + 1] if at + 1 < len(all_) else ("", False)
        if word in _TENS and after[0] in _UNITS and not ends:
            yield _NUMBERS[word][0] + _UNITS[after[0]], after[1]
            at += 1
        elif word in _CURRENCY and after[0][:1].isdigit():
            yield from ((after[0].removesuffix(".00"), False), (_CURRENCY[word], after[1]))
            at += 1
        else:
            written = _NUMBERS.get(word) or _CURRENCY.get(word) or _COINS.get(word) or word
            yield written, ends
        at += 1


# --- answers ----------------------------------------------------------------------------------------------------------

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


# --- wordings ---------------------------------------------------------------------------------------------------------

FILLER = ARTICLES | frozenset(
    "please kindly hi hello hey thanks thank you ok okay well so um just now then bitte danke hallo merci bonjour "
    "gracias hola 请 請".split()
)


def key_of(prompt: str) -> tuple[str, ...]:
    """The words of a wording without fillers: case, punctuation, greetings, thanks, articles. Numbers, names and
    negations count, and so does the order. Wordings with the same key are near copies."""
    words = same_words(prompt).words
    return tuple(word for word in words if word not in FILLER) or words


def leaks(wording: Wording) -> bool:
    """True if the prompt contains the answer, other than "yes" or "no"."""
    return wording.answer.strip().casefold() not in ("yes", "no") and holds(wording.prompt, wording.answer)


def question_key(question: str) -> str:
    """A key for the meaning of a question: its content words in any order and without endings, and its kind: person,
    place, time, reason, measure or thing."""
    words = same_words(question).words
    asked = next((_ASKS[word] for word in words if word in _ASKS), "")
    return " ".join([asked, *sorted(_content(words) or key_of(question))]).strip()


def content_of(text: str) -> set[str]:
    """The content words of a text, without endings."""
    return _content(same_words(text).words)


def _content(words: Iterable[str]) -> set[str]:
    return {stem(word) for word in words if word not in _EMPTY}


_ASKS = {"who": "who", "whom": "who", "whose": "who", "when": "when", "where": "where", "why": "why", "how": "how"}
_EMPTY = FILLER | frozenset(
    "what which who whom whose when where why how is are was were be do does did has have had of in on at by to for "
    "from it that this me tell i you".split()
)
