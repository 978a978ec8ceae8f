"""Rules for secrets in the format of gitleaks (MIT), and what of a text they find.

A rule is a regular expression of RE2, words of which one stands in every text that it can match, the least entropy of
a secret, and lists of what is none. RE2 takes time that grows with the length of the text alone, whatever the text.
"""

import math
import tomllib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

FILES = ("gitleaks.toml", "own.toml")
GENERAL = "secret"
"""the kind of what was found by its surroundings, which may be others at another place"""
_MEMORY = 64 << 20
"""bytes at most of the automaton of a rule; with less RE2 takes longer and finds the same"""


class Span(NamedTuple):
    """A secret in a text, bytes [begin, end)."""

    begin: int
    end: int
    kind: str


class Rules:
    """Several files of rules as one."""

    def __init__(self, tables: Iterable[Mapping[str, Any]]) -> None:
        tables = list(tables)
        disabled = {rule for table in tables for rule in table.get("extend", {}).get("disabledRules", ())}
        self.rules, words = list[_Rule](), dict[bytes, list[int]]()
        for table in tables:
            common = [each for each in [table.get("allowlist"), *table.get("allowlists", ())] if each]
            for rule in table["rules"]:
                if "path" in rule or "regex" not in rule or rule["id"] in disabled:  # `path`: files of certain names
                    continue
                for word in rule.get("keywords", ()):
                    words.setdefault(word.lower().encode(), []).append(len(self.rules))
                self.rules.append(_Rule(rule, common))
        self._of_word = [words[word] for word in words]
        self._always = [place for place, rule in enumerate(self.rules) if not rule.words]
        self._words = re2.Set.SearchSet(_options(case_sensitive=False))
        for word in words:
            self._words.Add(re2.escape(word))
        self._words.Compile()

    def spans(self, text: bytes) -> list[Span]:
        """Where secrets stand, in order, apart from each other. Of two at one place that of a rule which knows a kind
        of key counts before one found by what stands beside it, and the earlier rule before a later one."""
        places = set(self._always)
        for word in self._words.Match(text) or ():
            places.update(self._of_word[word])
        found = list[Span]()
        for place in sorted(places, key=lambda place: (self.rules[place].general, place)):
            for span in self.rules[place].spans(text):
                _add(span, found, 1 if not self.rules[place].general else _PIECE)
        return found


_END, _WIDE_END = r"""(?:[\x60'"\s;]|\\[nr]|$)""", r"""(?:[\x60'"\s;,&|)}\]<>]|$)"""
"""what gitleaks wants behind a key, and what stands there in logs, too"""


class _Rule:
    def __init__(self, table: Mapping[str, Any], common: Sequence[Mapping[str, Any]]) -> None:
        self.words = table.get("keywords", ())
        self.general = "general" in table.get("tags", ()) or table["id"] == "generic-api-key"
        self._kind = GENERAL if self.general else table["id"]
        self._pattern = _compiled(table["regex"] if self.general else table["regex"].replace(_END, _WIDE_END))
        groups = range(1, self._pattern.groups + 1)
        self._groups = [table["secretGroup"]] if "secretGroup" in table else [*groups, 0]
        self._entropy = table.get("entropy", 0.0)
        own = [one for one in common if table["id"] in one.get("targetRules", (table["id"],))]
        self._none = _allowed([*own, *table.get("allowlists", ())])

    def spans(self, text: bytes) -> Iterator[Span]:
        for match in self._pattern.finditer(text):
            places = map(match.span, self._groups)
            begin, end = _trimmed(text, *next((place for place in places if place[0] < place[1]), (0, 0)))
            if begin == end or any(none.search(_target(text, match, begin, end, of)) for of, none in self._none):
                continue
            if not self._entropy or entropy(text[begin:end]) > self._entropy:
                yield Span(begin, end, self._kind)


def _allowed(tables: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """What is no secret although a rule matches: expressions, and which text must hold one of them."""
    by_target = dict[str, list[str]]()
    for table in tables:
        if table.get("condition") == "AND" and "paths" in table:  # of files with certain names
            continue
        by_target.setdefault(table.get("regexTarget", "secret"), []).extend(table.get("regexes", ()))
        if words := table.get("stopwords"):
            by_target.setdefault("secret", []).append(f"(?i:{'|'.join(map(re2.escape, words))})")
    return [(target, _compiled("|".join(f"(?:{each})" for each in all_))) for target, all_ in by_target.items() if all_]


_LINE = 1000
"""bytes of a line on either side of a secret, at most"""


def _target(text: bytes, match: Any, begin: int, end: int, target: str) -> bytes:
    """The secret, all that the rule matched, or its lines."""
    if target == "match":
        begin, end = match.span()
    elif target == "line":
        after = text.find(b"\n", end, end + _LINE)
        begin = max(begin - _LINE, 0, text.rfind(b"\n", max(0, begin - _LINE), begin) + 1)
        end = after if after >= 0 else end + _LINE
    return text[begin:end]


@cache
def shipped() -> Rules:
    """Those that come with apollod."""
    folder = files("apollod").joinpath("data", "secrets")
    return Rules(tomllib.loads(folder.joinpath(name).read_text("utf-8")) for name in FILES)


def entropy(value: bytes) -> float:
    """Shannon entropy, bits a byte."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values()) if value else 0.0


def _compiled(regex: str) -> Any:
    return re2.compile(regex.encode(), _options())


def _options(case_sensitive: bool = True) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes, be they UTF-8 or not
    options.max_mem, options.log_errors, options.case_sensitive = _MEMORY, False, case_sensitive
    return options


_EDGES = b" \t\r\n\"'`"


def _trimmed(text: bytes, begin: int, end: int) -> tuple[int, int]:
    """Without blanks and quotes at its ends."""
    secret = text[begin:end]
    return begin + len(secret) - len(secret.lstrip(_EDGES)), end - len(secret) + len(secret.rstrip(_EDGES))


_PIECE = 8
"""bytes beside a key that is found already, from which on what a general rule finds belongs to it"""


def _add(span: Span, found: list[Span], least: int) -> None:
    """Insert one more span. Where it meets others and goes on for `least` bytes, they become one of their kind."""
    first = bisect_right(found, span.begin, key=lambda other: other.end)
    last = bisect_left(found, span.end, lo=first, key=lambda other: other.begin)
    if first == last:
        found.insert(first, span)
        return
    begin, end, kind = found[first].begin, found[last - 1].end, found[first].kind
    least = 1 if span.kind == kind else least
    if span.begin <= begin - least or end + least <= span.end or last - first > 1:
        found[first:last] = [Span(min(begin, span.begin), max(end, span.end), kind)]
