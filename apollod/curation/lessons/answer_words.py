"""Splits answers into words for comparison: case, accents, punctuation and notations of numbers, dates and times do not
count."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
