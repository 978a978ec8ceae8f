"""Detects scenarios that give the behaviour away in other words: the user asks the assistant for it, hints at it or
praises it.

By text alone: words are mapped to their meanings in talk about answers (MEANINGS). A sentence of the scenario counts if
it is addressed to the assistant or about its answers, and must hold most of the meanings of a sentence of the
instruction, its negation too. The subject matter of a scenario, such as files to delete, is not enough. A paraphrase in
words outside the table, or in another language than English, is not found.
"""

import re
from collections.abc import Iterable

from apollod.core.dreams.scenario import Turn
from apollod.curation.dreaming.scenario_words import SENTENCE, says_something, shown, stem, words_of

SHARE = 0.6
"""share of the meanings of an instruction's sentence, from which on it counts as given away"""
MEANT_MIN = 2
"""least shared meanings, unless the instruction has only one"""

_PHRASES = (
    (
        r"check (?:back )?with|run (?:it|that|this|them|things?|anything|everything) (?:by|past)|sign off on|"
        r"(?:my|the user's|our|her|his|their) (?:ok|okay|go-ahead|permission|approval|consent|blessing)|"
        r"give the nod",
        "ask",
    ),
    (
        r"(?:few|fewer|handful of|minimum of|many|more) words|to the point|one[- ]liners?|waffl\w+|ramble\w*|"
        r"rambling|long[- ]winded|in a nutshell",
        "brief",
    ),
    (r"upper[- ]?case|all[- ]caps|caps lock|block letters|big letters|shout\w*", "capitals"),
    (r"say(?:ing)? (?:hi|hello)|good (?:morning|day|evening)|shak\w+ hands", "greet"),
    (r"sign off with|wrap\w* up with|last words?|final words?|very end|at the bottom", "end"),
    (
        r"go(?:ing)? ahead|mov\w+ forward|touch\w* anything|do(?:ing)? anything|"
        r"mak\w+ (?:a|any) (?:move|change)s?",
        "act",
    ),
    (r"one at a time|(?:a )?single|just one|only one", "one"),
    (r"step by step|one after (?:the other|another)", "steps"),
    (r"point(?:s|ed)? out|spell(?:s|ed|ing)? out", "say"),
    (
        r"before(?:hand)?|first(?:ly)?|prior to|ahead of|until|upfront|up front|to begin with|"
        r"before anything else|at the (?:start|beginning)|(?:open|start|begin)\w* with|opening words?",
        "before",
    ),
    (
        r"hold(?:ing)? (?:back|off)|keep(?:ing)? (?:it |that |them )?to yourself|leav\w+ out|refrain\w*|"
        r"skip\w*|avoid\w*|stay(?:ing)? away from|spare me|instead of|rather than|without|never|none|no|not|"
        r"don't|do without",
        "not",
    ),
)
"""meanings of phrases of several words, and of single words in any form"""

_GROUPS = """
answer: answer answers answered answering write writes writing wrote reply replies replied replying respond
  responds response responses responding
say: say says saying said tell tells telling told name names naming named mention mentions mentioning list lists
  listing state states stating announce announces show shows
ask: ask asks asked asking question questions confirm confirms confirming confirmation inquire inquires clarify
  clarifies clarifying clarification permission consult agree agrees agreed approve approves approval consent ok
  okay yes nod
act: act acts acting acted action proceed proceeds proceeding begin start starting do does doing
brief: brief briefly briefness short shorter shortly concise concisely terse tersely succinct succinctly compact
  crisp
capitals: capital capitals capitalised capitalized uppercase caps
greet: greet greets greeting greetings hello hi welcome welcomes salutation salute
end: end ends ending close closes closing finish finishes finishing conclude concludes conclusion final finally
  last
begin: open opens opening begin begins beginning start starts starting
advice: advice advise advises advising suggestion suggestions suggest recommend recommends recommendation tips
  solution solutions fix fixes
feel: feel feels feeling feelings felt emotion emotions mood
listen: listen listens listening hear hears hearing
delete: delete deletes deleting remove removes removing erase erases erasing drop wipe wipes purge
overwrite: overwrite overwrites overwriting replace replaces replacing
file: file files document documents
wait: wait waits waiting pause pauses
sure: sure certain certainty confident confidence likely probability
hypothesis: hypothesis hypotheses theory theories explanation explanations possibility possibilities idea ideas
several: several multiple various different more many
source: source sources reference references citation citations cite cites citing cited link links
apology: apologise apologises apologize apologizes apology apologies sorry
polite: polite politely politeness courteous courteously courtesy manners kind kindly
formal: formal formally formality
rhyme: rhyme rhymes rhyming verse verses poem poems poetry
list: bullet bullets bulleted list lists
example: example examples illustration illustrations instance
reason: reason reasons why rationale justification explain explains explaining explanation
test: test tests tested testing
unit: unit units metric celsius kilometres kilometers
number: number numbers digit digits figure figures
language: language english german french spanish
simple: simple simply plain plainly easy
""".strip()


def _meanings() -> dict[str, str]:
    found = dict[str, str]()
    for line in _GROUPS.replace("\n  ", " ").splitlines():
        meaning, _, words = line.partition(": ")
        for word in words.split():
            found.setdefault(word, meaning)
    return found


MEANINGS = _meanings()
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
_JOINED = tuple((re.compile(rf"\b(?:{form})\b"), f" {meaning} ") for form, meaning in _PHRASES)


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
    for form, meaning in _JOINED:
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
_KNOWN = frozenset(MEANINGS.values()) | frozenset(meaning for _, meaning in _PHRASES)
