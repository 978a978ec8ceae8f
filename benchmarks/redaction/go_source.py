"""Evaluates constant Go expressions, as far as the test cases of gitleaks and trufflehog need it.

Strings, their concatenations, names, slices, maps of strings, and calls of the functions given to the reader. Anything
else raises Unknown; such a case is left out and counted.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<raw>`[^`]*`)|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<rune>'(?:[^'\\\n]|\\.)+')"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<mark>\.\.\.|:=|\W)""",
    re.S,
)
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))")
_LETTERS = dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True))
_OPEN, _CLOSE = "([{", ")]}"

Token = tuple[str, str]
"""kind, and text as in the source"""
Function = Callable[..., Any]


class Unknown(ValueError):
    """An expression that cannot be evaluated."""


def tokens(source: str) -> list[Token]:
    """The tokens of a source, without comments and blanks."""
    return [(m.lastgroup or "", m.group()) for m in _TOKEN.finditer(source) if m.lastgroup != "skip"]


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        letter, *codes, octal = match.groups()
        return _LETTERS[letter] if letter else chr(int(octal, 8) if octal else int(next(filter(None, codes)), 16))

    return _ESCAPE.sub(one, text[1:-1])


def formatted(template: str, *values: Any) -> str:
    """fmt.Sprintf for strings."""
    rest = iter(values)

    def one(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        value = str(next(rest, "%!(MISSING)"))
        return f'"{value}"' if match.group().endswith("q") else value

    return re.sub(r"%[-+# 0-9.]*[svqdx%]", one, template)


FUNCTIONS: Mapping[str, Function] = {
    "fmt.Sprintf": formatted,
    "strings.Repeat": lambda text, count: text * int(count),
    "strings.TrimSpace": str.strip,
    "strings.ToUpper": str.upper,
    "strings.ToLower": str.lower,
    "append": lambda first, *more: [*first, *more],
}


class Reader:
    """Evaluates expressions of one file; `names` are its constants, and grow with assignments."""

    def __init__(self, found: list[Token], functions: Mapping[str, Function], names: dict[str, Any]) -> None:
        self.found, self.functions, self.names = found, functions, names

    def text_at(self, at: int) -> str:
        return self.found[at][1] if at < len(self.found) else ""

    def _next(self, at: int) -> int:
        """The place after the comma that follows the item at `at`, or of the bracket that closes the slice."""
        depth = 0
        while at < len(self.found):
            text = self.text_at(at) if self.found[at][0] == "mark" else " "
            if depth == 0 and (text == "," or text in _CLOSE):
                return at + (text == ",")
            depth += (text in _OPEN) - (text in _CLOSE)
            at += 1
        return at

    def value(self, at: int) -> tuple[Any, int]:
        """The value of the sum that begins at `at`, and the place after it. Raises Unknown."""
        value, at = self._term(at)
        while self.text_at(at) == "+":
            more, at = self._term(at + 1)
            value = value + more
        return value, at

    def _term(self, at: int) -> tuple[Any, int]:
        if at >= len(self.found):
            raise Unknown("the file ends")
        kind, text = self.found[at]
        if kind == "raw":
            return text[1:-1].replace("\r", ""), at + 1
        if kind == "text":
            return _unescaped(text), at + 1
        if kind == "number":
            return text, at + 1
        if text == "(":
            value, at = self.value(at + 1)
            return value, at + 1
        if text == "[":
            if [self.text_at(at + n) for n in range(1, 4)] == ["]", "string", "{"]:
                return self._items(at + 3)
            if [self.text_at(at + n) for n in range(1, 4)] == ["]", "byte", "("]:
                value, at = self.value(at + 4)
                return value, at + 1
        if text == "map" and [self.text_at(at + n) for n in range(1, 6)] == ["[", "string", "]", "string", "{"]:
            return self._items(at + 5)
        if kind == "name":
            return self._named(at)
        raise Unknown(text)

    def _named(self, at: int) -> tuple[Any, int]:
        name, at = self.text_at(at), at + 1
        while self.text_at(at) == ".":
            name, at = f"{name}.{self.text_at(at + 1)}", at + 2
        if self.text_at(at) == "(":
            if name not in self.functions:
                raise Unknown(name)
            given, at = self._items(at)
            return self.functions[name](*given), at
        if name == "nil":
            return [], at
        if name not in self.names:
            raise Unknown(name)
        return self.names[name], at

    def _items(self, at: int) -> tuple[list[Any], int]:
        """The items between brackets; the values of pairs; `x...` as its items. Unknown items of a slice are left out;
        in a call they raise Unknown."""
        items, call, at = list[Any](), self.text_at(at) == "(", at + 1
        while self.text_at(at) not in (")", "}", ""):
            try:
                value, after = self.value(at)
                if self.text_at(after) == ":":
                    value, after = self.value(after + 1)
                at = after
            except (Unknown, TypeError):
                if call:
                    raise
                at = self._next(at)
                continue
            if self.text_at(at) == "...":
                items, at = [*items, *value], at + 1
            else:
                items.append(value)
            at += self.text_at(at) == ","
        return items, at + 1

    def assignments(self, begin: int = 0, end: int | None = None) -> Iterator[tuple[str, Any]]:
        """Names and their assigned values, in order, as far as they can be evaluated."""
        for at in range(begin, len(self.found) if end is None else end):
            if self.found[at][0] != "name" or self.text_at(at + 1) not in ("=", ":="):
                continue
            if at and self.text_at(at - 1) in (".", ","):
                continue
            try:
                value, _ = self.value(at + 2)
            except (Unknown, TypeError):
                continue
            self.names[self.text_at(at)] = value
            yield self.text_at(at), value
