"""Replaces credentials by placeholders before anything of a log is kept: journal, quarantine, messages to people.

Works on the bytes of a record as they stand in the file, JSON escapes and all, so that there is one place for it. The
rules see the same text with escapes decoded.

A placeholder names the kind and 16 bits of a hash: the same secret is the same placeholder everywhere, two different
ones are told apart in a conversation, and a password cannot be found by trial.

The level is set once per process (`use`), at its start, so that no caller can forget it.

The rules have the format of gitleaks (MIT): a regular expression of RE2, keywords of which every match contains one,
the least entropy of a secret, and allowlists. The time of RE2 grows linearly with the length of the text, for any text.
As an extension of the format, a rule may name a `check`, a checksum that has to be right.
"""

import math
import re
import tomllib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

_AGAIN_MIN, _AGAIN_MOST = 12, 100
"""least bytes of a secret to search for in the rest of the record, too, and most such secrets"""


class Span(NamedTuple):
    """A secret in a text, bytes [begin, end)."""

    begin: int
    end: int
    kind: str


class _Level:
    personal = False


def use(personal: bool) -> None:
    """From now on in this process, redact personal data, too, or credentials alone."""
    _Level.personal = personal


def redact(data: bytes) -> tuple[bytes, Mapping[str, int]]:
    """The bytes with a placeholder for each secret, and the number of secrets by kind."""
    if not data.strip():  # a blank line costs nothing
        return data, _NONE
    spans = shipped(_Level.personal).spans(_read(data))
    if not spans:
        return data, _NONE
    pieces, at, counts = list[bytes](), 0, Counter[str]()
    for begin, end, kind in _with_copies(data, _in_strings(data, _in_record(data, spans))):
        pieces += [data[at:begin], placeholder(kind, data[begin:end])]
        at = end
        counts[kind] += 1
    return b"".join([*pieces, data[at:]]), counts


def redact_text(text: str) -> str:
    """The text with a placeholder for each secret; characters that UTF-8 cannot encode, such as half a surrogate pair,
    become `?`."""
    return redact(text.encode("utf-8", "replace"))[0].decode()


def placeholder(kind: str, secret: bytes) -> bytes:
    """The placeholder of a secret; it needs no escaping in JSON."""
    return b"[redacted %s %s]" % (kind.encode(), blake2b(secret, digest_size=2).hexdigest().encode())


_NONE: Mapping[str, int] = {}
_PLACEHOLDER = re.compile(rb"\[redacted [^\]\[]{1,64}\]")
_ESCAPE = re.compile(rb"\\+(?:[nrt\"]|u[0-9a-fA-F]{4}(?:\[[0-9;]{0,12}m)?)?")
_BY_CODE = re.compile(rb"\\+u(?:00([2-7][0-9a-fA-F])|[0-9a-fA-F]{4})(?:\[[0-9;]{0,12}m)?")
_LETTERS = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\", b" "))


def _read(data: bytes) -> bytes:
    """The text with each JSON escape, however deep, as the one character that it means, and placeholders as blanks.

    Each match of `_ESCAPE` becomes one byte, and everything else stays.
    """
    if b"\\" in data:
        if b"\\u" in data:  # also terminal colours, which end at a letter
            data = _BY_CODE.sub(lambda match: bytes([int(match[1] or b"20", 16)]).replace(b"\\", b" "), data)
        while b"\\\\" in data:
            data = data.replace(b"\\\\", b"\\")
        for escape, meant in _LETTERS:
            data = data.replace(escape, meant)
    if b"[redacted " in data:
        data = _PLACEHOLDER.sub(lambda match: b"\n" * len(match.group()), data)
    return data


def _in_record(data: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """Map spans of the text from `_read` back to the bytes of the record."""
    read, begins, ends = 0, [0], [0]
    for match in _ESCAPE.finditer(data):
        read += match.start() - ends[-1] + 1
        begins.append(read)
        ends.append(match.end())

    def place(at: int) -> int:
        after = bisect_right(begins, at) - 1
        return ends[after] + at - begins[after]

    for begin, end, kind in spans:
        yield Span(place(begin), place(end), kind)


_QUOTE = re.compile(rb'(?<!\\)(?:\\\\)*"')


def _in_strings(data: bytes, spans: Iterable[Span]) -> Iterator[Span]:
    """Spans without the quotes of a JSON string, split at quotes within."""
    for begin, end, kind in spans:
        marks = [match.end() - 1 for match in _QUOTE.finditer(data, begin, end)]
        for start, stop in pairwise([begin - 1, *marks, end]):
            if not marks or stop - start > 4:
                yield Span(start + 1, stop, kind)


def _with_copies(data: bytes, spans: Iterable[Span]) -> list[Span]:
    """The spans and those of further copies of the same secrets in the record."""
    found = sorted(spans)
    kinds = {data[begin:end]: kind for begin, end, kind in reversed(found) if end - begin >= _AGAIN_MIN}
    for secret in sorted(kinds, key=lambda secret: (-len(secret), secret))[:_AGAIN_MOST]:
        begin = data.find(secret)
        while begin >= 0:
            end = begin + len(secret)
            after = bisect_right(found, begin, key=lambda span: span.begin)
            if not (after and found[after - 1].end > begin) and not (after < len(found) and found[after].begin < end):
                found.insert(after, Span(begin, end, kinds[secret]))
            begin = data.find(secret, end)
    return found


# --- rules ------------------------------------------------------------------------------------------------------------

FILES, PERSONAL = ("gitleaks.toml", "own.toml"), "personal.toml"
GENERAL = "secret"
"""kind of a secret found by its context, which may differ elsewhere"""
_MEMORY = 64 << 20
"""most bytes of a rule's automaton; with less memory RE2 finds the same, more slowly"""


class Rules:
    """Several files of rules combined."""

    def __init__(self, tables: Iterable[Mapping[str, Any]]) -> None:
        tables = list(tables)
        disabled = {rule for table in tables for rule in table.get("extend", {}).get("disabledRules", ())}
        self.rules, words = list[_Rule](), dict[bytes, list[int]]()
        for table in tables:
            common = [each for each in [table.get("allowlist"), *table.get("allowlists", ())] if each]
            for rule in table["rules"]:
                if "path" in rule or "regex" not in rule or rule["id"] in disabled:  # `path`: for certain file names
                    continue
                for word in rule.get("keywords", ()):
                    words.setdefault(word.lower().encode(), []).append(len(self.rules))
                self.rules.append(_Rule(rule, common))
        self._of_word = [words[word] for word in words]
        wordless = [place for place, rule in enumerate(self.rules) if not rule.words]
        self._always = [place for place in wordless if self.rules[place].general]
        self._shaped = [place for place in wordless if not self.rules[place].general]
        self._words = _set(map(re2.escape, words), case_sensitive=False)
        self._shapes = _set(self.rules[place].pattern.encode() for place in self._shaped)

    def spans(self, text: bytes) -> list[Span]:
        """Spans of secrets, in order, not overlapping. Where two meet, a rule for a kind of key precedes one that goes
        by context, and an earlier rule a later one."""
        places = set(self._always)
        for word in self._words.Match(text) or ():
            places.update(self._of_word[word])
        if self._shaped:
            places.update(self._shaped[shape] for shape in self._shapes.Match(text) or ())
        found = list[Span]()
        for place in sorted(places, key=lambda place: (self.rules[place].general, place)):
            for span in self.rules[place].spans(text):
                _add(span, found, 1 if not self.rules[place].general else _PIECE)
        return found


_END, _WIDE_END = r"""(?:[\x60'"\s;]|\\[nr]|$)""", r"""(?:[\x60'"\s;,&|)}\]<>]|$)"""
"""gitleaks' pattern for the end of a key, and a wider one for logs"""


def luhn(value: bytes) -> bool:
    """True if the last digit of a payment card's number is right (ISO/IEC 7812)."""
    digits = [int(chr(byte)) for byte in reversed(value) if chr(byte).isdigit()]
    return sum(digits[::2] + [2 * n - 9 * (n > 4) for n in digits[1::2]]) % 10 == 0


def iban(value: bytes) -> bool:
    """True if the two digits behind the country are right (ISO 13616)."""
    text = value.decode("ascii").replace(" ", "")
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


CHECKS: Mapping[str, Callable[[bytes], bool]] = {"luhn": luhn, "iban": iban}


class _Rule:
    def __init__(self, table: Mapping[str, Any], common: Sequence[Mapping[str, Any]]) -> None:
        self.words = table.get("keywords", ())
        self.general = "general" in table.get("tags", ()) or table["id"] == "generic-api-key"
        self._kind = GENERAL if self.general else table["id"]
        self.pattern = table["regex"] if self.general else table["regex"].replace(_END, _WIDE_END)
        self._compiled = _compiled(self.pattern)
        groups = range(1, self._compiled.groups + 1)
        self._groups = [table["secretGroup"]] if "secretGroup" in table else [*groups, 0]
        self._entropy = table.get("entropy", 0.0)
        self._check = CHECKS[table["check"]] if "check" in table else None
        own = [one for one in common if table["id"] in one.get("targetRules", (table["id"],))]
        self._none = _allowed([*own, *table.get("allowlists", ())])

    def spans(self, text: bytes) -> Iterator[Span]:
        for match in self._compiled.finditer(text):
            places = map(match.span, self._groups)
            begin, end = _trimmed(text, *next((place for place in places if place[0] < place[1]), (0, 0)))
            if begin == end or any(none.search(_target(text, match, begin, end, of)) for of, none in self._none):
                continue
            if self._entropy and entropy(text[begin:end]) <= self._entropy:
                continue
            if self._check is None or self._check(text[begin:end]):
                yield Span(begin, end, self._kind)


def _allowed(tables: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Allowlist of a rule: expressions of harmless matches, and the text that each is tested against."""
    by_target = dict[str, list[str]]()
    for table in tables:
        if table.get("condition") == "AND" and "paths" in table:  # for certain file names
            continue
        by_target.setdefault(table.get("regexTarget", "secret"), []).extend(table.get("regexes", ()))
        if words := table.get("stopwords"):
            by_target.setdefault("secret", []).append(f"(?i:{'|'.join(map(re2.escape, words))})")
    return [(target, _compiled("|".join(f"(?:{each})" for each in all_))) for target, all_ in by_target.items() if all_]


_LINE = 1000
"""most bytes of a line on either side of a secret"""


def _target(text: bytes, match: Any, begin: int, end: int, target: str) -> bytes:
    """The text for an allowlist: the secret, the whole match, or its lines."""
    if target == "match":
        begin, end = match.span()
    elif target == "line":
        after = text.find(b"\n", end, end + _LINE)
        begin = max(begin - _LINE, 0, text.rfind(b"\n", max(0, begin - _LINE), begin) + 1)
        end = after if after >= 0 else end + _LINE
    return text[begin:end]


@cache
def shipped(personal: bool = False) -> Rules:
    """Load the rules that ship with apollod; `personal`: include those for personal data."""
    folder, names = files("apollod").joinpath("data", "secrets"), (*FILES, PERSONAL) if personal else FILES
    return Rules(tomllib.loads(folder.joinpath(name).read_text("utf-8")) for name in names)


def entropy(value: bytes) -> float:
    """Shannon entropy, bits a byte."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values()) if value else 0.0


def _compiled(regex: str) -> Any:
    return re2.compile(regex.encode(), _options())


def _set(patterns: Iterable[bytes], case_sensitive: bool = True) -> Any:
    """A set of patterns; finds in one pass which of them a text holds. For words, too, faster than Aho-Corasick
    (ahocorasick-rs 1.0): 541 against 346 MB/s on Python sources."""
    made = re2.Set.SearchSet(_options(case_sensitive))
    for pattern in patterns:
        made.Add(pattern)
    made.Compile()
    return made


def _options(case_sensitive: bool = True) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes, be they UTF-8 or not
    options.max_mem, options.log_errors, options.case_sensitive = _MEMORY, False, case_sensitive
    return options


_EDGES = b" \t\r\n\"'`"


def _trimmed(text: bytes, begin: int, end: int) -> tuple[int, int]:
    """The span without blanks and quotes at its ends."""
    secret = text[begin:end]
    return begin + len(secret) - len(secret.lstrip(_EDGES)), end - len(secret) + len(secret.rstrip(_EDGES))


_PIECE = 8
"""least bytes by which a general rule's match must exceed a key already found, to extend it"""


def _add(span: Span, found: list[Span], least: int) -> None:
    """Insert a span. If it overlaps others and exceeds them by `least` bytes, they merge, with the first's kind."""
    first = bisect_right(found, span.begin, key=lambda other: other.end)
    last = bisect_left(found, span.end, lo=first, key=lambda other: other.begin)
    if first == last:
        found.insert(first, span)
        return
    begin, end, kind = found[first].begin, found[last - 1].end, found[first].kind
    least = 1 if span.kind == kind else least
    if span.begin <= begin - least or end + least <= span.end or last - first > 1:
        found[first:last] = [Span(min(begin, span.begin), max(end, span.end), kind)]
