"""Detects worthless scenarios: those that state the behaviour to be practised (`leak`) or give it away in other words
(`hint`: the user asks the assistant for it, hints at it or praises it), and copies of a seed (`echo`).

Other words are found by text alone: words are mapped to their meanings in talk about answers (`data/meanings.toml`). A
sentence of the scenario counts if it is addressed to the assistant or about its answers, and must hold most of the
meanings of a sentence of the instruction, its negation too. The subject matter of a scenario, such as files to delete,
is not enough. A paraphrase in words outside the table, or in another language than English, is not found.
"""

import re
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from math import ceil

from apollod.core.facts.dreams.scenario import Turn
from apollod.curation.dreaming.scenario_text import SENTENCE, says_something, shown, text_of, words_of
from apollod.curation.lessons.english import stem

PART = 0.5
"""share of a sentence's content words, in order and close together, that counts as stating it"""
PART_WORDS = 3
"""least content words for a partial match; shorter sentences must match as a whole"""
WHOLE = 0.8
"""share of all its words, in order, from which on a sentence counts as whole"""
COPIED = 0.6
"""share of a scenario's words in runs shared with seeds, from which on it is a copy"""
COPIED_SHORT = 0.9
"""the same for a scenario of fewer than `SHORT` words, where a single word weighs much"""
SHORT = 20
WORDS_MAX = 30
"""words of a sentence that are compared; longer ones also clause by clause. Bounds the time"""
RUN = 4
"""consecutive words shared with a seed that count as copied"""
ROW = 5
"""consecutive words, two content words among them, that are not shared with an instruction by chance"""

_CLAUSE = re.compile(r",\s|[，、]")


def leak(instruction: str, scenario: Iterable[Turn]) -> str:
    """The reason why a scenario gives away the behaviour to be practised; empty if it does not. It does if a sentence
    of the instruction, whole or most of its content words in order, stands in it within a few words. A single word in
    common is not enough."""
    said = _Said([stem(word) for word in words_of(text_of(scenario))])
    sentences = _sentences(instruction)
    parts = [(one, PART_WORDS) for sentence in sentences for one in _CLAUSE.split(sentence)]
    asked = dict.fromkeys([(instruction, 1), *((s, 1) for s in sentences), *parts])
    return next(filter(None, (_told(*one, said) for one in asked)), "")


class _Said:
    """The words of a scenario with an index of their positions, used for every sentence of an instruction."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.rows, self._at = words, _rows(words), dict[str, list[int]]()
        for at, word in enumerate(words):
            self._at.setdefault(word, []).append(at)

    def times(self, word: str) -> int:
        return len(self._at.get(word, ()))

    def places(self, wanted: set[str]) -> list[int]:
        """Positions of any of these words, ascending."""
        return sorted(at for word in wanted for at in self._at.get(word, ()))


def _told(sentence: str, content_min: int, said: _Said) -> str:
    """The reason why the scenario states a sentence; empty if it does not, or if the sentence has fewer than
    `content_min` content words."""
    words = words_of(sentence)[:WORDS_MAX]
    whole = [stem(word) for word in words]
    content = [stem(word) for word in words if says_something(word)]
    if len(words) < 2 or len(content) < content_min:
        return ""
    near = len(words) + max(2, len(words) // 2)
    part = min(len(content), max(PART_WORDS, ceil(PART * len(content))))
    told = _in_order(content, said, near + len(words) // 2, part)
    if told == len(content) and _in_order(whole, said, near, int(WHOLE * len(whole))) >= WHOLE * len(whole):
        return f"it says the instruction: {shown(sentence)}"
    if len(content) < PART_WORDS:
        return ""
    if any(row in said.rows and len(set(row) & set(content)) > 1 for row in _rows(whole)):
        return f"it says a part of the instruction word for word: {shown(sentence)}"
    if told >= max(PART_WORDS, PART * len(content)):
        return f"it says {told} of the {len(content)} words of the instruction: {shown(sentence)}"
    if _together(set(content), said, near):
        return f"it says the instruction in another order: {shown(sentence)}"
    return ""


def echo(seeds: Sequence[str], scenario: Iterable[Turn]) -> str:
    """The reason why a scenario is not new: it is a seed, or most of it is copied from seeds. Empty: it is new."""
    said = words_of(text_of(scenario))
    if not said:
        return "it has no words"
    run = min(RUN, len(said))
    known = set[tuple[str, ...]]()
    for number, seed in enumerate(seeds, 1):
        words = words_of(seed)
        if words and len(words) >= COPIED * len(said) and _stands_in(words, said):
            return f"it is seed {number}"
        known.update(_runs(words, run))
    copied = set[int]()
    for at, words_there in enumerate(_runs(said, run)):
        if words_there in known:
            copied.update(range(at, at + run))
    share = len(copied) / len(said)
    if share >= (COPIED_SHORT if len(said) < SHORT else COPIED):
        return f"{share:.0%} of its words are copied from its seeds"
    return ""


def _rows(words: list[str]) -> set[tuple[str, ...]]:
    return set(_runs(words, ROW))


def _runs(words: list[str], length: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[skipped:] for skipped in range(length)), strict=False))


def _stands_in(words: list[str], said: list[str]) -> bool:
    """True if the words occur consecutively."""
    return any(said[at : at + len(words)] == words for at, word in enumerate(said) if word == words[0])


def _in_order(words: list[str], said: _Said, within: int, least: int) -> int:
    """The largest number of `words` found in this order, with gaps, within a window of so many words; 0 if fewer than
    `least`.

    A later window gains at most as many as it has new words, so most windows are skipped.
    """
    wanted = Counter(words)
    if sum(min(times, said.times(word)) for word, times in wanted.items()) < least:
        return 0
    places = said.places(set(wanted))
    bits = _bits(words)
    there = [bits[said.words[at]] for at in places]
    most, aim, stop, looked_from = 0, max(1, least), 0, 0
    for begin, start in enumerate(places):
        stop = bisect_left(places, start + within, stop)
        if stop < looked_from or stop - begin < aim:
            continue
        found = _common(len(words), there[begin:stop])
        if found >= aim:
            most, aim = found, found + 1
            if most == len(words):
                break
        looked_from = stop + aim - found
    return most


def _bits(words: list[str]) -> dict[str, int]:
    """The positions of each distinct word, as a bit mask."""
    bits = dict[str, int]()
    for at, word in enumerate(words):
        bits[word] = bits.get(word, 0) | 1 << at
    return bits


def _common(length: int, there: Iterable[int]) -> int:
    """Length of the longest common subsequence of `length` words with others, given by their bit masks (Hyyrö,
    "Bit-parallel LCS-length computation revisited", 2004)."""
    every = (1 << length) - 1
    left = every
    for bits in there:
        used = left & bits
        left = (left + used | left - used) & every
    return length - left.bit_count()


def _together(wanted: set[str], said: _Said, within: int) -> bool:
    """True if all of these words occur within a window of so many words, in any order."""
    if len(wanted) < PART_WORDS or not all(map(said.times, wanted)):
        return False
    places, inside, begin = said.places(wanted), Counter[str](), 0
    for at in places:
        inside[said.words[at]] += 1
        while places[begin] <= at - within:
            gone = said.words[places[begin]]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            begin += 1
        if len(inside) == len(wanted):
            return True
    return False


# --- in other words ---------------------------------------------------------------------------------------------------

SHARE = 0.6
"""share of the meanings of an instruction's sentence, from which on it counts as given away"""
MEANT_MIN = 2
"""least shared meanings, unless the instruction has only one"""

_SAID = tomllib.loads((files("apollod") / "data" / "meanings.toml").read_text("utf-8"))
MEANINGS = {word: name for name, words in reversed(_SAID["words"].items()) for word in words.split()}
"""by word; of several, the first counts"""
GRAMMAR = frozenset({"answer", "say", "before", "not", "one", "several", "begin", "act"})
"""meanings common to most instructions and scenarios beside their matter: never enough alone"""
OTHERS_MAX = 1
"""most other meanings in a sentence that matches an instruction of one meaning: with more, it is a task"""

_TO_ASSISTANT = re.compile(
    r"\b(?:you|your|yours|yourself|please|answers?|repl(?:y|ies)|responses?)\b|"
    r"\b(?:i|we|i'd|we'd)(?: would| really| always| only)? "
    r"(?:like|love|want|prefer|appreciate|expect|hope|hate|insist)\b"
)
_ORDERS = frozenset(
    "keep make be give let do try remember always never just no not use put only leave hold go start stop".split()
)
_PHRASES = tuple(
    (re.compile(rf"\b(?:{'|'.join(text.splitlines())})\b"), f" {meaning} ")
    for meaning, text in _SAID["phrases"].items()
)


def hint(instruction: str, scenario: Iterable[Turn]) -> str:
    """The reason why a scenario gives away the behaviour to be practised in other words; empty if it does not."""
    said = [one for turn in scenario for one in _sentences(turn.content)]
    directed = [(one, _meant(words)) for one in said if _is_directed(one, words := _in_meanings(one))]
    for wanted in (_meant(_in_meanings(sentence)) for sentence in _sentences(instruction)):
        for one, meant in directed:
            if _tells(wanted, meant):
                return f"it says the instruction in other words: {shown(one)}"
    return ""


def _tells(wanted: frozenset[str], meant: frozenset[str]) -> bool:
    """True if a sentence with the meanings `meant` gives away `wanted`."""
    both, matter = wanted & meant, wanted - GRAMMAR
    if not both & matter or ("not" in wanted) > ("not" in meant):
        return False
    if len(wanted) == 1:
        return len(meant - wanted - GRAMMAR) <= OTHERS_MAX
    return len(both) >= MEANT_MIN and len(both & matter) >= SHARE * len(matter)


def _in_meanings(sentence: str) -> list[str]:
    """The words of a sentence, known ones replaced by their meanings."""
    text = sentence.casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    for form, meaning in _PHRASES:
        text = form.sub(meaning, text)
    return [MEANINGS.get(word, word) for word in words_of(text)]


def _meant(words: list[str]) -> frozenset[str]:
    """The distinct words that carry meaning, unknown ones as stems."""
    return frozenset(word if word in _KNOWN else stem(word) for word in words if word in _KNOWN or _matters(word))


def _matters(word: str) -> bool:
    return says_something(word) and word not in _PEOPLE


def _is_directed(sentence: str, words: list[str]) -> bool:
    """True if the sentence is addressed to the assistant, or about its answers."""
    said_to = _TO_ASSISTANT.search(sentence.casefold()) is not None
    return said_to or (bool(words) and (words[0] in _ORDERS or words[0] in _KNOWN))


def _sentences(text: str) -> list[str]:
    return [one for one in SENTENCE.split(text) if one.strip()]


_PEOPLE = frozenset("user users customer customers person people".split())
_KNOWN = frozenset(MEANINGS.values()) | frozenset(_SAID["phrases"])
