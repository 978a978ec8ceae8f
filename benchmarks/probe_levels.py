"""Writes the probes of levels 2 and 3 that come with apollod: `python -m benchmarks.probe_levels`.

Arithmetic in steps, words to be found in a long text, programs whose output is asked for, and instructions of more than
one part: GROUP_SIZE of each at each level, in groups such as `arithmetic-2`. Expected answers are computed here: sums
are added up, programs are run. Only programs of this file are run, never a model's answer. A question about a long text
has the name of the text as its system prompt; a reader of the file puts the text there.

The seed is fixed, and both files are checked in. A released item keeps its id and its words for good, since baselines
depend on them: new items need a new file.
"""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from apollod.curation.probes.probe_item import Shingle, shingles_of, words_of
from apollod.curation.probes.probe_lines import NEARLY, SHINGLE

DATA = Path(__file__).parent.parent / "apollod" / "data"
ITEMS, DOCUMENTS = DATA / "levels.jsonl", DATA / "documents.jsonl"
GROUP_SIZE = 180
"""the loss of a quarter of a group is found by the first look in 99 % of cases, of 15 % by three looks in 95 %
(benchmarks.guard_models)"""
LEVELS = (2, 3)
TEXTS = 5
"""documents of a level; all questions about one begin alike, so that an engine reads it once"""
WORDS = """
    amber anchor apron arrow autumn badge barrel basket beacon bench bottle branch bridge bucket button cabin candle
    carpet cellar circle copper corner cotton cradle curtain desert dinner donkey engine feather finger forest garden
    ginger guitar hammer harbour helmet honey island jacket kettle ladder lantern lemon market meadow mirror mitten
    needle oven paper pencil pepper pillow planet pocket rabbit ribbon river saddle salmon shadow silver spider summer
    table thread ticket timber tunnel turnip valley velvet violin wagon walnut window winter yellow
""".split()
SHORT = (
    "ash bay cup dew elm fig gum hay ink jar kite lamp moss nest oak pear quay reed sand tin urn vine wax yarn".split()
)


class Item(NamedTuple):
    """A probe: the question, the kind of check, and the expected answer."""

    asked: str
    kind: str
    expect: Any
    document: str = ""


def ends_with(answer: object) -> str:
    """A pattern for answers that end with this number or word."""
    text = str(answer)
    digits = f"{text[:-3]},?{text[-3:]}" if text.isdigit() and len(text) > 3 else re.escape(text)
    return rf"(?<![\w.,-]){digits}\W*\Z"


def whole(*lines: str) -> str:
    """A pattern for answers that consist of these lines, with or without quotes or a fence around them."""
    body = r"\s*\n\s*".join(re.sub(r"(?:\\ )+", r"\\s+", re.escape(line)) for line in lines)
    return rf"\A[\s\"'`*]*{body}[\s\"'`*.]*\Z"


# --- arithmetic -------------------------------------------------------------------------------------------------------


def arithmetic(rng: Random, level: int, number: int) -> Item:
    """A calculation of 2 or 3 operations (level 2), or 4 to 6. No result is below 10 or above 9,999."""
    value = rng.randint(11, 60)
    said = [f"Start with {value}."]
    for _ in range(2 + number % 2 if level == 2 else 4 + number % 3):
        parts_of = [k for k in range(2, 10) if value % k == 0 and value // k >= 10]
        ways = ["add"] + ["subtract"] * (value > 20) + ["multiply"] * (value < 1200) + ["divide"] * bool(parts_of)
        match rng.choice(ways):
            case "add":
                step = rng.randint(12, 99)
                value, text = value + step, f"Add {step}."
            case "subtract":
                step = rng.randint(2, min(value - 10, 99))
                value, text = value - step, f"Subtract {step}."
            case "multiply":
                step = rng.randint(2, 8)
                value, text = value * step, f"Multiply by {step}."
            case _:
                step = rng.choice(parts_of)
                value, text = value // step, f"Divide by {step}."
        said.append(text)
    said.append("Write the result after each step on a line of its own, and nothing else.")
    return Item(" ".join(said), "regex", ends_with(value))


# --- programs ---------------------------------------------------------------------------------------------------------


def _program(rng: Random, level: int, number: int) -> str:
    a, b, c, k = rng.randint(2, 9), rng.randint(11, 30), rng.randint(3, 9), rng.randint(2, 5)
    words, numbers = rng.sample(WORDS, 5), rng.sample(range(1, 40), 6)
    x, y, i, j, f = rng.sample(SHORT, 5)  # names of variables
    if level == 2:
        return (
            f"{x} = {a}\nfor {i} in range({c}, {c + k + 1}):\n    {x} += {i} * {k}\nprint({x})",
            f"{x} = {words}\nprint({x}[{a % 4}] + {x}[-1])",
            f"{x} = {b}\nif {x} % {k} == {a % k}:\n    {x} = {x} + {a}\nelse:\n    {x} = {x} * {c}\nprint({x})",
            f"{x} = {words[0]!r}\nprint({x}[{a % 3}:{a % 3 + 3}].upper())",
            f"{x} = {b * c}\n{y} = 0\nwhile {x} > {a}:\n    {x} = {x} // 2\n    {y} += 1\nprint({y} + {k})",
            f"{x} = {dict(zip(words[:4], numbers, strict=False))}\nprint({x}[{words[1]!r}] + {x}[{words[3]!r}] * {k})",
        )[number % 6]
    return (
        f"{x} = 0\nfor {i} in range(1, {a + 3}):\n    for {j} in range({i}, {a + k + 2}):\n"
        f"        if ({i} * {j}) % {k} == {a % k}:\n            {x} += 1\nprint({x})",
        f"def {f}({i}):\n    if {i} < 2:\n        return {i} + {a}\n"
        f"    return {f}({i} - 1) + {f}({i} - 2) * {k}\n\nprint({f}({4 + c % 3}))",
        f"{x} = {words}\n{y} = ''\nfor {i} in sorted({x}):\n    if len({i}) % 2 == {a % 2}:\n"
        f"        {y} += {i}[0]\n    else:\n        {y} += {i}[-1].upper()\nprint({y})",
        f"{x} = {' '.join(words[:3])!r}\n{y} = {{}}\nfor {i} in {x}:\n    {y}[{i}] = {y}.get({i}, 0) + 1\n"
        f"print(sum({j} for {j} in {y}.values() if {j} > 1) * {k} + len({y}))",
        f"{x}, {y} = {b}, {a}\nfor {i} in range({c}):\n    if {x} % 2 == 0:\n"
        f"        {x}, {y} = {x} // 2, {y} + {i}\n    else:\n        {x}, {y} = {x} + {y}, {y} + {k}\nprint({x} + {y})",
        f"{x} = {numbers}\nwhile len({x}) > 2:\n    {i} = {x}.pop(0)\n    if {i} > {x}[0]:\n"
        f"        {x}[0] = {i} - {x}[0]\n    else:\n        {x}[-1] += {k}\nprint({x}[0] * 2 + {x}[1])",
    )[number % 6]


def code(rng: Random, level: int, number: int) -> Item:
    """A question for the output of a program."""
    source = _program(rng, level, number)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(source, {})  # only from `_program`
    asked = f"What does this Python program print?\n\n```python\n{source}\n```\n\n"
    return Item(f"{asked}Answer with what it prints, and nothing else.", "regex", ends_with(printed.getvalue().strip()))


# --- instructions of more than one part -------------------------------------------------------------------------------


def _two_parts(rng: Random, number: int) -> Item:
    words, short = rng.sample(WORDS, 5), rng.sample(SHORT, 2)
    given = ", ".join(words)
    low, high = rng.randint(2, 30), rng.randint(5, 8)
    gone = low + rng.randint(1, high - 1)
    letter = words[2][0]
    match number % 5:
        case 0:
            text = f"Write these words in alphabetical order and in capital letters, with commas between them: {given}."
            return Item(f"{text} Write nothing else.", "regex", whole(", ".join(sorted(words)).upper()))
        case 1:
            kept = [word for word in words if word[0] != letter]
            text = f'Leave out every word that begins with "{letter}", and join the others with " / ": {given}.'
            return Item(f"{text} Write nothing else.", "regex", whole(" / ".join(kept)))
        case 2:
            text = f'how many words there are, and under "last" the last of them: {given}. Answer with JSON only.'
            found = {"count": len(words) - number % 2, "last": words[-1]}
            if number % 2:
                text = text.replace(f"{words[0]}, ", "", 1)
            return Item(f'Write a JSON object that has under "count" {text}', "schema", _only(found))
        case 3:
            lines = [str(n) for n in range(low, low + high + 1) if n != gone]
            text = f"Count from {low} to {low + high}, one number a line, and leave out {gone}. Write nothing else."
            return Item(text, "regex", whole(*lines))
        case _:
            text = (
                f'Write the word "{words[0]}" {rng.choice(("twice", "two times"))} on one line, with a space between, '
            )
            text += f'and below it the word "{short[0]}" in capital letters. Write nothing else.'
            return Item(text, "regex", whole(f"{words[0]} {words[0]}", short[0].upper()))


def _more_parts(rng: Random, number: int) -> Item:
    words, short = rng.sample(WORDS, 4), rng.sample(SHORT, 3)
    mixed = rng.sample([*words, *short], 7)
    given, letter = ", ".join(mixed), rng.choice(words)[0]
    low, step = rng.randint(2, 20), rng.randint(2, 4)
    match number % 5:
        case 0:
            kept = sorted(word for word in mixed if word[0] != letter)
            text = (
                f'Take these words: {given}. Leave out each that begins with "{letter}", put the others in alphabetical'
                ' order and in capital letters, one a line, and number the lines "1.", "2." and so on.'
            )
            check: Any = whole(*(f"{n}. {word.upper()}" for n, word in enumerate(kept, 1)))
        case 1:
            found: dict[str, Any] = {"count": len(mixed), "sorted": sorted(mixed)[:3]}
            longest = [word for word in mixed if len(word) == max(map(len, mixed))]
            found |= {"longest": longest[0] if len(longest) == 1 else None, "sum": low * step + number}
            text = (
                f'Of these words: {given}. Write a JSON object with four keys. "count": how many words there are.'
                ' "sorted": a list of the first three of them in the alphabet. "longest": the longest word, or null if'
                f' more than one is as long as that. "sum": {low} times {step}, plus {number}. Answer with JSON only.'
            )
            return Item(text, "schema", _only(found))
        case 2:
            top = low + 6 * step
            gone = top - 3 * step
            text = (
                f"Count down from {top} to {low} in steps of {step}, with commas between the numbers, leave out {gone},"
                f' and write on a second line the word "{words[0]}" in capital letters.'
            )
            row = ", ".join(str(n) for n in range(top, low - 1, -step) if n != gone)
            check = whole(row, words[0].upper())
        case 3:
            kept = [word.upper() for word in reversed(mixed) if len(word) > 4]
            text = (
                f"Keep of these words only those of more than four letters: {given}. Write how many you kept and a"
                ' colon, then the kept words in reverse order and in capital letters, joined with " / ".'
            )
            check = whole(f"{len(kept)}: {' / '.join(kept)}")
        case _:
            text = (
                f'First write the word "{words[0]}" in capital letters. Then on a new line {low} plus {number}. Then on'
                f' a new line the words "{short[0]}" and "{short[1]}" joined with a hyphen. Last, on a fourth line, the'
                f' first letter of "{words[1]}", three times without spaces.'
            )
            check = whole(words[0].upper(), str(low + number), f"{short[0]}-{short[1]}", words[1][0] * 3)
    return Item(f"{text} Write nothing else.", "regex", check)


def parts(rng: Random, level: int, number: int) -> Item:
    """An instruction of two parts (level 2), or of three or four."""
    return _two_parts(rng, number) if level == 2 else _more_parts(rng, number)


def _only(found: dict[str, Any]) -> dict[str, Any]:
    values = {key: {"const": value} for key, value in found.items()}
    return {"type": "object", "properties": values, "required": list(found), "additionalProperties": False}


# --- long texts -------------------------------------------------------------------------------------------------------

PLACES = ("mill", "inn", "barn", "chapel", "forge", "bakery", "school", "ferry", "smithy", "library")
COLOURS = "red green blue white black grey brown purple orange pink".split()
ANIMALS = "goat mule heron badger squirrel raven hedgehog pony goose ferret".split()
TRADES = "cooper weaver potter baker carpenter tailor glazier mason thatcher brewer".split()
CROPS = "barley rye hops flax clover beans plums cherries cabbages onions".split()
FACTS = (
    ("The door of the {place} in {name} is {value}.", "What colour is the door of the {place} in {name}?", COLOURS),
    ("{name} keeps a {value} behind the {place}.", "Which animal does {name} keep behind the {place}?", ANIMALS),
    ("In the {place} everybody knows {name}, who works as a {value}.", "What does {name} from the {place} work as?",
     TRADES),
    ("The field between {name} and the {place} is sown with {value}.",
     "What is sown in the field between {name} and the {place}?", CROPS),
)  # fmt: skip
IDLE = (
    "It rained for {n} days that year, and the road by the {place} was closed until the water fell.",
    "The bell was rung {n} times at noon, as it had been since the {place} was built.",
    "Nobody could say why {n} chairs stood in the yard of the {place}, or who had carried them there.",
    "A letter took {n} days to arrive, unless the wind was from the west.",
    "Of {n} lamps along the quay only a few were lit, and those burned low.",
    "There was talk of a new bridge, which would cost {n} crowns and which nobody wanted to pay for.",
    "The clock at the {place} was {n} minutes slow, and the whole street lived by it.",
    "On market days {n} carts stood in the square, and dogs slept beneath them.",
)
ONSETS, MIDDLES, ENDS = "Bel Cor Dra Fen Gal Hol Jor Kel Lun Mor Nar Ost Per Ral Sel Tam Ul Ver Wil Yor".split(), (
    "a e i o u an en or ul im".split()
), "dan wick by mere stead lin rath nor vey ska".split()  # fmt: skip


def documents(rng: Random) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Name, text and (question, answer) pairs of each document of both levels."""
    names = [one + middle + end for one in ONSETS for middle in MIDDLES for end in ENDS]
    rng.shuffle(names)
    for level in LEVELS:
        for number in range(TEXTS):
            asked, said = list[tuple[str, str]](), list[str]()
            for place in range(GROUP_SIZE // TEXTS):
                fact, question, values = FACTS[place % len(FACTS)]
                words = {"name": names.pop(), "place": rng.choice(PLACES)}
                value = rng.choice(values)
                said.append(fact.format(**words, value=value))
                asked.append((question.format(**words), value))
            for place in range(0 if level == 2 else 15 * number):  # as similar to the requested ones as possible
                fact, _, values = FACTS[place % len(FACTS)]
                said.append(fact.format(name=names.pop(), place=rng.choice(PLACES), value=rng.choice(values)))
            idle = 4 + 4 * number if level == 2 else 40 + 8 * number
            said += [rng.choice(IDLE).format(n=rng.randint(3, 90), place=rng.choice(PLACES)) for _ in range(idle)]
            rng.shuffle(said)
            paragraphs = [" ".join(said[at : at + 6]) for at in range(0, len(said), 6)]
            text = "\n\n".join(["Answer by this text.", *paragraphs])
            yield f"context-{level}.{number + 1}", text, asked


def contexts(name: str, asked: list[tuple[str, str]]) -> Iterator[Item]:
    """Questions about one document."""
    for question, answer in asked:
        yield Item(f"{question} Answer with one word.", "regex", rf"(?i)\b{answer}\b", name)


# --- the files --------------------------------------------------------------------------------------------------------


def made() -> tuple[str, str]:
    """The contents of ITEMS and of DOCUMENTS."""
    texts = list(documents(Random("context")))
    groups: dict[str, list[Item]] = {}
    for level in LEVELS:
        for make in (arithmetic, code, parts):
            groups[f"{make.__name__}-{level}"] = _different(make, level)
        about = [contexts(name, asked) for name, _, asked in texts if name.startswith(f"context-{level}")]
        groups[f"context-{level}"] = [item for one in about for item in one]
    lines = [
        _line({"kind": item.kind, "id": f"{group}/{number:03}", "group": group, "messages": _messages(item),
               "expect": item.expect})
        for group, items in groups.items()
        for number, item in enumerate(items, 1)
    ]  # fmt: skip
    return "".join(lines), "".join(_line({"name": name, "text": text}) for name, text, _ in texts)


def _different(make: Any, level: int) -> list[Item]:
    """GROUP_SIZE items, no two of them nearly the same."""
    rng, found, known = Random(f"{make.__name__} {level}"), list[Item](), list[frozenset[Shingle]]()
    while len(found) < GROUP_SIZE:
        item = make(rng, level, len(found))
        own = shingles_of(words_of(item.asked), SHINGLE)
        if all(len(own & other) / len(own | other) < NEARLY for other in known):
            found.append(item)
            known.append(own)
    return found


def _messages(item: Item) -> list[dict[str, str]]:
    before = [{"role": "system", "content": item.document}] if item.document else []
    return [*before, {"role": "user", "content": item.asked}]


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def main() -> None:
    """Write both files."""
    items, texts = made()
    ITEMS.write_text(items)
    DOCUMENTS.write_text(texts)


if __name__ == "__main__":
    main()
