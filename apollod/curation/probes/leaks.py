"""Finds probes that are training examples. A learned probe measures nothing, so a probe file with one in it is refused,
and the example named.

Words are compared (`probe_item.py`). An example leaks a probe
- whose text, or conversation without its system prompt, stands in it word for word, in any of its turns (of fewer than
four words: that is a whole turn of it), or whose answer of eight words or more does;
- of 40 words or more (fewer say too little: two short questions may agree in all but the words that matter) that has
half of its runs of five words in it, or that contains nearly all the runs of one of its turns of 20 words or more.

For a pattern's contrast case, only its scenario counts, since practices share the text before it; only if it has eight
words, and only word for word: scenarios are imagined from people's words, several from the same seed, and
`core/rules/dreams` already excludes those too similar for practice.

Signatures of whole texts (`signatures.py`) would not find a probe in a long session, so runs are looked up here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from apollod.curation.probes.probe_item import Probe, Shingle, shingles_of, words_of
from apollod.curation.probes.probe_kinds import kind_of
from apollod.curation.signatures import WORDS_MIN
from apollod.wire.comparisons import as_text
from apollod.wire.records import CompletionRecord, MessagesRecord, TextRecord

PHRASE_MIN, ANSWER_MIN, EXCERPT_MIN = 4, 8, 20  # words
SHINGLE = 5
OF_PROBE, OF_TURN = 0.5, 0.9

_What = tuple[str, str]
"""id of a probe, and a description of the leaked part"""
_Words = tuple[str, ...]


class Leaks:
    """Index of a set of probes, to find them in examples. Time for an example is linear in its words, 0.4 us each."""

    def __init__(self, probes: Iterable[Probe]) -> None:
        self._whole = defaultdict[_Words, list[_What]](list)
        self._phrases = defaultdict[_Words, list[tuple[_Words, _What]]](list)
        self._runs = defaultdict[Shingle, list[int]](list)
        self._long: list[tuple[int, _What]] = []
        for probe in probes:
            name = f"the probe {probe.id}" + (f" ({probe.place})" if probe.place else "")
            kind, said = kind_of(probe), probe.said()
            if len(said) >= kind.leak_min:
                self._add(said, (probe.id, "the words of " + name), kind.leak_nearly)
            for answer in kind.answers(probe):
                if len(words := words_of(answer)) >= ANSWER_MIN:
                    self._add(words, (probe.id, "the answer to " + name))

    def of(self, canonical: bytes) -> dict[str, str]:
        """The probes in a canonical record: description of the leaked part by id, for a message. Raises RecordRefused
        for bytes that are not a record."""
        turns = [words_of(turn) for turn in _turns(canonical)]
        words = tuple(word for turn in turns for word in turn)
        found: dict[str, str] = {}
        for probe, what in (*self._whole_turns(turns), *self._phrases_in(words), *self._nearly(words, turns)):
            found.setdefault(probe, what)
        return found

    def _add(self, words: _Words, what: _What, nearly: bool = True) -> None:
        if len(words) < PHRASE_MIN:
            self._whole[words].append(what)
            return
        self._phrases[words[:PHRASE_MIN]].append((words, what))
        if nearly and len(words) >= WORDS_MIN:
            runs = shingles_of(words, SHINGLE)
            for one in runs:
                self._runs[one].append(len(self._long))
            self._long.append((len(runs), what))

    def _whole_turns(self, turns: Iterable[_Words]) -> list[_What]:
        return [what for turn in turns for what in self._whole.get(turn, ())]

    def _phrases_in(self, words: _Words) -> list[_What]:
        firsts = zip(words, words[1:], words[2:], words[3:], strict=False)
        return [
            what
            for place in [place for place, first in enumerate(firsts) if first in self._phrases]
            for phrase, what in self._phrases[words[place : place + PHRASE_MIN]]
            if words[place : place + len(phrase)] == phrase
        ]

    def _nearly(self, words: _Words, turns: Iterable[_Words]) -> list[_What]:
        common = self._common(words)
        shares = [(common[number] / self._long[number][0], self._long[number][1]) for number in sorted(common)]
        nearly = [(probe, f"{share:.0%} of {what}") for share, (probe, what) in shares if share >= OF_PROBE]
        for turn in turns if common else ():
            runs = len(shingles_of(turn, SHINGLE))
            for number, count in sorted(self._common(turn).items()) if len(turn) >= EXCERPT_MIN else ():
                if count / runs >= OF_TURN:
                    probe, what = self._long[number][1]
                    nearly.append((probe, f"a part of {what}"))
        return nearly

    def _common(self, words: _Words) -> Counter[int]:
        """The number of runs of words that each long probe shares with these."""
        all_runs = zip(words, words[1:], words[2:], words[3:], words[4:], strict=False)
        known = {run for run in all_runs if run in self._runs}
        return Counter(number for run in known for number in self._runs[run])


def _turns(canonical: bytes) -> Sequence[str]:
    match as_text(canonical):
        case MessagesRecord(messages=messages):
            return [message.content for message in messages]
        case CompletionRecord(prompt=prompt, completion=completion):
            return [prompt, completion]
        case TextRecord(text=text):
            return [text]
