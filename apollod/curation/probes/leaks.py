"""Is an example a probe? What was learned is no measure any more, so a probe file with a training example in it is
refused, and the example named.

Words are compared (`plain_words.py`). An example leaks a probe

- whose text, or conversation without its system prompt, stands in it word for word, in any of its turns (of fewer than
  four words: that is a whole turn of it), or whose answer of eight words or more does;
- of 40 words or more (fewer say too little: two short questions differ in what counts and agree in the rest) that has
  half of its runs of five words in it, or a turn of which, of 20 words or more, has nearly all of its own in the probe.

Signatures of whole texts (`minhash.py`) would not see a probe in a long session, which is why runs are looked up here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from apollod.curation.minhash import WORDS_MIN
from apollod.curation.probes.plain_words import Shingle, shingles_of, words_of
from apollod.curation.probes.probe_lines import Probe
from apollod.wire.records import CompletionRecord, MessagesRecord, TextRecord, decode_record

PHRASE_MIN, ANSWER_MIN, EXCERPT_MIN = 4, 8, 20  # words
SHINGLE = 5
OF_PROBE, OF_TURN = 0.5, 0.9

_Phrase = tuple[tuple[str, ...], str]


class Leaks:
    """What of an example is in a set of probes. Time to look at one is linear in its words."""

    def __init__(self, probes: Iterable[Probe]) -> None:
        self._whole: dict[tuple[str, ...], str] = {}
        self._phrases: dict[tuple[str, ...], list[_Phrase]] = defaultdict(list)
        self._runs: dict[Shingle, list[int]] = defaultdict(list)
        self._long: list[tuple[int, str]] = []
        for probe in probes:
            name = f"the probe {probe.id}" + (f" ({probe.place})" if probe.place else "")
            self._add(probe.said(), PHRASE_MIN, "the words of " + name)
            for answer in probe.expect if isinstance(probe.expect, tuple) else ():
                if len(words := words_of(answer)) >= ANSWER_MIN:
                    self._add(words, PHRASE_MIN, "the answer to " + name)

    def leak(self, canonical: bytes) -> str:
        """What of which probe is in a canonical record, for a message; empty: nothing. Raises RecordRefused for bytes
        that are no record."""
        turns = [words_of(turn) for turn in _turns(canonical)]
        whole = next((self._whole[turn] for turn in turns if turn in self._whole), "")
        words = tuple(word for turn in turns for word in turn)
        return whole or self._phrase(words) or self._nearly(words, turns)

    def _add(self, words: tuple[str, ...], least: int, what: str) -> None:
        if len(words) < least:
            self._whole.setdefault(words, what)
            return
        self._phrases[words[:PHRASE_MIN]].append((words, what))
        if len(words) >= WORDS_MIN:
            runs = shingles_of(words, SHINGLE)
            for one in runs:
                self._runs[one].append(len(self._long))
            self._long.append((len(runs), what))

    def _phrase(self, words: tuple[str, ...]) -> str:
        for place in range(len(words) - PHRASE_MIN + 1):
            for phrase, what in self._phrases.get(words[place : place + PHRASE_MIN], ()):
                if words[place : place + len(phrase)] == phrase:
                    return what
        return ""

    def _nearly(self, words: tuple[str, ...], turns: list[tuple[str, ...]]) -> str:
        common = self._common(shingles_of(words, SHINGLE))
        for number in sorted(common):
            size, what = self._long[number]
            if common[number] / size >= OF_PROBE:
                return f"{common[number] / size:.0%} of {what}"
        for turn in turns if common else ():
            runs = shingles_of(turn, SHINGLE)
            for number, count in sorted(self._common(runs).items()) if len(turn) >= EXCERPT_MIN else ():
                if count / len(runs) >= OF_TURN:
                    return f"a part of {self._long[number][1]}"
        return ""

    def _common(self, runs: frozenset[Shingle]) -> Counter[int]:
        return Counter(number for one in runs for number in self._runs.get(one, ()))


def leaks(probes: Iterable[Probe], example: bytes) -> str:
    """See `Leaks.leak`; for one example."""
    return Leaks(probes).leak(example)


def _turns(canonical: bytes) -> list[str]:
    match decode_record(canonical):
        case MessagesRecord(messages=messages):
            return [message.content for message in messages]
        case CompletionRecord(prompt=prompt, completion=completion):
            return [prompt, completion]
        case TextRecord(text=text):
            return [text]
