"""Reads the texts that gitleaks (MIT) tests its own rules with, from a checkout: `tps`, which a rule must find, and
`fps`, which it must not. Random parts are drawn here, since its tests draw them too."""

import random
from collections.abc import Callable, Mapping
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.redaction.draw import Sample
from benchmarks.redaction.drawn_text import drawn
from benchmarks.redaction.go_source import FUNCTIONS, Function, Reader, Unknown, tokens

RULES, TEMPLATES = "cmd/generate/config/rules", "cmd/generate/config/utils/generate.go"

RECORDS = (
    '{"parentUuid":null,"type":"user","message":{"role":"user","content":"SECRET"},"isMeta":false}',
    '{"type":"user","message":{"role":"user","content":[{"type":"text","text":"SECRET"}]},"uuid":"u"}',
    '{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"SECRET"}]}}',
    '{"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": "SECRET"}], "timestamp": 1}}',
    '{"messages": [{"role": "user", "content": "SECRET"}, {"role": "assistant", "content": "Where is it used?"}]}',
    '{"messages":[{"content":"SECRET","role":"user"},{"content":"Where is it used?","role":"assistant"}]}',
    '{"conversations": [{"from": "human", "value": "SECRET"}, {"from": "gpt", "value": "Where is it used?"}]}',
    '{"prompt": "SECRET", "completion": "Where is it used?"}',
    "<|im_start|>system\\nHelp.<|im_end|>\\n<|im_start|>user\\nSECRET<|im_end|>\\n<|im_start|>assistant\\n",
)
"""messages in the formats of Claude Code, Codex, pi, data sets and a chat template"""


class Bare(NamedTuple):
    """A secret, and the word beside it in the templates."""

    rule: str
    word: str
    secret: str


class Tests(NamedTuple):
    """The test data of all rules."""

    bare: tuple[Bare, ...]
    templates: tuple[str, ...]
    literal: tuple[tuple[str, str], ...]
    """rule and text of cases with a whole text; the secret part is not marked"""
    refused: tuple[tuple[str, str], ...]
    """rule and text that it must not find"""
    harmless: tuple[tuple[str, str], ...]
    """`refused` without texts that another rule must find, and without keys that are drawn with a fault"""

    def in_templates(self) -> list[Sample]:
        """Each secret in each template."""
        return [
            Sample(one.rule, _filled(template, one), (one.secret,)) for one in self.bare for template in self.templates
        ]

    def alone(self) -> list[Sample]:
        return [Sample(one.rule, one.secret, (one.secret,)) for one in self.bare]

    def pasted(self) -> list[Sample]:
        """Each secret as a whole user message, in the records of several agents in turn."""
        return [
            Sample(one.rule, record.replace("SECRET", one.secret), (one.secret,))
            for one, record in zip(self.bare, cycle(RECORDS), strict=False)
        ]

    def none(self) -> list[Sample]:
        return [Sample(rule, text) for rule, text in self.harmless]


def _filled(template: str, one: Bare) -> str:
    for mark, value in (("{i}", one.word), ("{I}", one.word.upper()), ("{s}", one.secret)):
        template = template.replace(mark, value)
    return template


def _functions(rng: random.Random, made: set[str], bare: Callable[[str, str], list[str]]) -> Mapping[str, Any]:
    def some(alphabet: str) -> Callable[[str], str]:
        return lambda count: f"{alphabet}{{{count}}}"

    def new(pattern: str) -> str:
        made.add(text := drawn(rng, pattern))
        return text

    return {
        **FUNCTIONS,
        "secrets.NewSecret": new, "newPlausibleSecret": new,
        "utils.Numeric": some("[0-9]"), "utils.Hex": some("[a-f0-9]"), "utils.AlphaNumeric": some("[a-z0-9]"),
        "utils.AlphaNumericExtendedShort": some("[a-z0-9_-]"), "utils.AlphaNumericExtended": some(r"[a-z0-9=_\-]"),
        "utils.AlphaNumericExtendedLong": some(r"[a-z0-9\/=_\+\-]"),
        "utils.Hex8_4_4_4_12": lambda: "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "utils.GenerateSampleSecrets": bare,
        "utils.GenerateSampleSecret": lambda word, secret: f'{word}_api_token = "{secret}"',
    }  # fmt: skip


def read(checkout: Path, seed: int) -> Tests:
    """Read all tests; the same for the same seed."""
    source = (checkout / TEMPLATES).read_text()
    table = source[source.index("samples := map[string]string{") : source.index("replacer :=")]
    reader = Reader(tokens(table), FUNCTIONS, {})
    templates = tuple(next(reader.assignments())[1])
    bare, literal, refused, made = list[Bare](), list[tuple[str, str]](), list[tuple[str, str]](), set[str]()
    for path in sorted((checkout / RULES).glob("*.go")):
        if path.name.endswith("_test.go"):
            continue
        rng = random.Random(f"{seed}/{path.name}")
        _read_file(path, bare, literal, refused, lambda sample, rng=rng: _functions(rng, made, sample))
    wanted = {text for _, text in literal}
    harmless = [one for one in refused if one[1] not in wanted and not any(key in one[1] for key in made)]
    return Tests(
        tuple(dict.fromkeys(bare)), templates, tuple(dict.fromkeys(literal)), tuple(dict.fromkeys(refused)),
        tuple(dict.fromkeys(harmless)),
    )  # fmt: skip


def _read_file(
    path: Path, bare: list[Bare], literal: list[tuple[str, str]], refused: list[tuple[str, str]],
    functions: Callable[[Function], Mapping[str, Function]],
) -> None:  # fmt: skip
    found, names = tokens(path.read_text()), dict[str, Any]()
    rule = path.stem

    def sample(word: str, secret: str) -> list[str]:
        bare.append(Bare(rule, word, secret))
        return []

    reader = Reader(found, functions(sample), names)
    list(reader.assignments(0, next((n for n, token in enumerate(found) if token[1] == "func"), 0)))
    starts = [n for n, token in enumerate(found) if token[1] == "func" and reader.text_at(n + 1) != "("]
    for begin, end in pairwise([*starts, len(found)]):
        rule = _id(reader, begin, end) or path.stem
        texts = dict[str, Any]()
        names.pop("tps", None)
        for name, value in reader.assignments(begin, end):
            texts[name] = value
        literal += [(rule, text) for text in texts.get("tps", ()) if isinstance(text, str)]
        refused += [(rule, text) for text in texts.get("fps", ()) if isinstance(text, str)]


def _id(reader: Reader, begin: int, end: int) -> str:
    for at in range(begin, end):
        if reader.text_at(at) == "RuleID" and reader.text_at(at + 1) == ":":
            try:
                return str(reader.value(at + 2)[0])
            except Unknown:
                return ""
    return ""
