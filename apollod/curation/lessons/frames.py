"""The shipped frames (`data/frames.jsonl`): question templates that need no model, and the languages that have some."""

import re
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

Use = Literal["practice", "held_out"]


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence around a question. `text` has one slot: {question}, {clause} (the question within a sentence: "where
    Quillon is"), {stem} (a statement up to its answer) or {gap} (the statement with a gap for the answer)."""

    id: str
    lang: str
    use: Use
    text: str

    @property
    def slot(self) -> str:
        return self.text[self.text.index("{") + 1 : self.text.index("}")]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Questions for a form of statement.

    `sentence`: a regular expression for the whole statement; or for an English one split by `english.py`, expressions
    for `subject`, `verb` (its base form) and `rest`. The group `o` is the answer, unless `answer` is set. Slots of the
    questions: the groups; {s} the subject, {v} the verb as it stands, {b} its base form, {do} its auxiliary, {who} and
    {what} by the answer; capitalised slots begin a question.
    """

    id: str
    lang: str
    practice: tuple[str, ...]
    held_out: tuple[str, ...]
    sentence: str = ""
    subject: str = ""
    verb: str = ""
    rest: str = ""
    answer: str = ""
    many: bool = False
    """several answers may be right at once: "Quillon uses Redis", "Quillon uses Kafka" """


@cache
def _shipped() -> tuple[Frame | Rule, ...]:
    lines = (files("apollod") / "data" / "frames.jsonl").read_bytes().splitlines()
    return tuple(
        msgspec.json.decode(line, type=Frame) if b'"use"' in line else msgspec.json.decode(line, type=Rule)
        for line in lines
    )


@cache
def frames(lang: str, use: Use) -> tuple[Frame, ...]:
    """Frames of a language and use, in the order of the file."""
    return tuple(one for one in _shipped() if isinstance(one, Frame) and one.lang == lang and one.use == use)


@cache
def rules(lang: str) -> tuple[Rule, ...]:
    """Rules for statements in a language, in order of precedence."""
    return tuple(one for one in _shipped() if isinstance(one, Rule) and one.lang == lang)


_NUMBER = (
    r"\d[\d.,]*(?: (?:thousand|million|billion))?"
    r"|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|seventy"
    r"|eighty|ninety|a hundred)(?:[- ](?:one|two|three|four|five|six|seven|eight|nine|hundred|thousand|million))*"
)
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_CLOCK = r"\d{1,2}(?::\d\d)?(?: ?[ap]\.?m\b\.?)|\d{1,2}:\d\d|noon|midnight"
_TIME = (
    rf"(?:the )?(?:(?:early|late|mid|about|around) )?(?:\d{{1,2}}(?:st|nd|rd|th)?\.? (?:of )?{_MONTH}(?:,? \d{{4}})?"
    rf"|{_MONTH}(?: \d{{1,2}}(?:st|nd|rd|th)?)?(?:,? \d{{4}})?|(?:1\d|20)\d\ds?\b|\d{{4}}-\d\d-\d\d|{_CLOCK}"
    rf"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?(?: (?:morning|noon|evening|night))?"
    rf"|(?:spring|summer|autumn|winter)(?: \d{{4}})?)(?: at (?:{_CLOCK}))?"
)


@cache
def pattern(text: str) -> re.Pattern[str]:
    """The compiled expression of a rule, with <number> and <time> replaced."""
    return re.compile(text.replace("<number>", f"(?:{_NUMBER})").replace("<time>", f"(?:{_TIME})"))


# --- languages --------------------------------------------------------------------------------------------------------

_WORDS = {
    "en": "the of is are was were and to in on at a an what who where when which how does do did has have it by "
    "for my not",
    "de": "der die das und ist sind war nicht auf von mit ein eine wer wo wann welche welcher wie hat haben im "
    "den dem für es bei gehört heißt wird in liegt steht lautet auch",
    "fr": "le la les et est sont était pas sur de du des un une qui où quand quel quelle comment a ont dans au "
    "avec il ne d l se sa son",
    "es": "el la los las y es son era no en de del un una quién dónde cuándo cuál cómo tiene tienen con se su "
    "por está qué",
}
_OF = {
    word: [lang for lang in _WORDS if word in _WORDS[lang].split()]
    for words in _WORDS.values()
    for word in words.split()
}
_HAN, _KANA = re.compile(r"[\u3400-\u9fff]"), re.compile(r"[\u3040-\u30ff]")


def language_of(text: str) -> str:
    """en, de, fr, es or zh, by typical words; English if nothing points to another language."""
    if _KANA.search(text):
        return "en"
    if len(_HAN.findall(text)) * 2 > len(re.findall(r"[a-z]+", text, re.IGNORECASE)):
        return "zh"
    votes = dict.fromkeys(_WORDS, 0.0)
    for word in re.findall(r"[^\W\d_]+", text.lower()):
        for lang in _OF.get(word, ()):
            votes[lang] += 1 / len(_OF[word])
    if re.search(r"[¿¡ñ]", text.lower()):
        votes["es"] += 1
    if re.search(r"[ßäöü]", text.lower()):
        votes["de"] += 0.5
    return max(votes, key=lambda lang: (votes[lang], lang == "en"))
