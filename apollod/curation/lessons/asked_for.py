"""Makes questions that a statement answers: by rule, or the statement with a gap if no rule fits; and the shipped
frames (`data/frames.jsonl`), question templates that need no model, with the languages that have some."""

import re
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

import msgspec

from apollod.curation.lessons.english import Clause, clause_in
from apollod.curation.lessons.matching import ARTICLES, plain_words

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


SENTENCES_MAX = 4
"""sentences of a statement that make questions"""
SENTENCE_MAX = 400
"""characters of a sentence that are analysed"""
TAIL = 4
"""words at the end that serve as the answer if nothing else stands out"""

_SENTENCE = re.compile(r"(?<=[^\s.][.!?])\s+(?=[^a-z\s])|(?<=[。！？])|\n+")
_REASON = re.compile(
    r"(?:,? (?:because|which|so that|since|while|although|unless|whereas)\b|;|\s[–—-]\s| \().*", re.DOTALL
)
_SALIENT = re.compile(r"\d[\d.,:/-]*\d|\d")
_NAME = re.compile(
    r"(?:(?<=\s)|^)[A-Z0-9ÄÖÜÉÀ][\w.'’-]*(?:\s(?:of|de|von|der|la|the|del)\s[A-Z][\w.'’-]*|\s[A-Z0-9ÄÖÜÉÀ][\w.'’-]*)*$"
)
_PERSON = re.compile(r"[A-Z][a-zà-ÿ'’.-]+(?: [A-Z][a-zA-Zà-ÿ'’.-]*){1,3}")
_ANOTHER = re.compile(r",\s| and (?=(?:is|are|was|were|has|have|had|can|will)\b)")
_OWN = re.compile(r"(?:his|her|its|their)\b")
_PLACED = re.compile(r"^(\d[\d.,:]*)\s(?:in|at|on|near)\s.*")
_ARTICLE = re.compile(
    r"^(?:Der|Die|Das|Ein|Eine|Mein|Meine|Unser|Unsere|Le|La|Les|L['’]|Mon|Ma|Notre|El|Los|Las|Mi|Nuestr[oa])\b"
)
_DOER = re.compile(
    r"\b(?:\w+(?:er|or|ist|ian|man|woman)|chief|head|king|queen|wife|husband|president|boss|ceo|cto|guard|captain)\b"
)


class Asked(NamedTuple):
    """Questions with the same answer; `stem`: the sentence up to the answer, if the answer ends it; `gap`: the sentence
    with "___" for the answer; `rule`: id, empty if none fits; `many`: see `Rule`; `says`: a whole answer."""

    answer: str
    practice: tuple[str, ...]
    held_out: tuple[str, ...]
    stem: str
    gap: str
    rule: str
    many: bool = False
    says: str = ""


def asked_for(statement: str) -> list[Asked]:
    """The questions for each of the first sentences, at least one. The statement must have words."""
    lang = language_of(statement)
    sentences = sentences_in(statement)
    found, subject = list[Asked](), ""
    for sentence in sentences[:SENTENCES_MAX]:
        named = re.sub(r"^(?:It|He|She)\b", subject, sentence) if subject else sentence
        asked = _by_rule(named, lang)
        if asked is not None:
            found.append(asked)
        if lang == "en" and (clause := clause_in(_bare(named))) is not None:
            subject = subject or clause.subject[:1].upper() + clause.subject[1:]
    return found or [_by_gap(sentences[0] if sentences else statement)]


def sentences_in(text: str) -> list[str]:
    """The sentences of a text that have words."""
    return [one.strip() for one in _SENTENCE.split(text) if plain_words(one).words]


def _bare(sentence: str) -> str:
    """The sentence without final punctuation and reasons."""
    return _REASON.sub("", sentence[:SENTENCE_MAX].strip()).rstrip(" .!。！,").strip()


def _by_rule(sentence: str, lang: str) -> Asked | None:
    bare = _bare(sentence)
    clause = clause_in(bare) if lang == "en" else None
    for rule in rules(lang):
        slots = _slots(rule, bare, clause)
        if slots is None or not (answer := _short(rule.answer or slots.pop("o"))):
            continue
        if lang != "en":
            slots["s"] = _ARTICLE.sub(lambda found: found.group().lower(), slots["s"])
        slots |= {"who": _who(rule, slots, answer), "what": _what(slots, answer)}
        stem, gap = _opened(sentence, answer) if not rule.answer else ("", "")
        practice, held_out = (
            tuple(_filled(one, slots, lang) for one in each) for each in (rule.practice, rule.held_out)
        )
        says = f"{rule.answer}. {sentence}" if rule.answer else sentence
        return Asked(answer, practice, held_out, stem, gap, rule.id, rule.many, says)
    return None


def _slots(rule: Rule, sentence: str, clause: Clause | None) -> dict[str, str] | None:
    if rule.sentence:
        found = pattern(rule.sentence).fullmatch(sentence)
        return {name: text or "" for name, text in found.groupdict().items()} if found else None
    if clause is None or not pattern(rule.verb).fullmatch(clause.base):
        return None
    rest = pattern(rule.rest).fullmatch(clause.rest)
    subject = pattern(rule.subject or ".+").fullmatch(clause.subject)
    if rest is None or subject is None:
        return None
    groups = subject.groupdict() | rest.groupdict()
    own = {"s": clause.subject, "v": clause.verb, "b": clause.base, "do": clause.do}
    return own | {name: text or "" for name, text in groups.items()}


def _who(rule: Rule, slots: dict[str, str], answer: str) -> str:
    asked = slots.get("n") or slots.get("a") or ""
    return "who" if _DOER.search(asked.lower()) and _PERSON.fullmatch(answer) else "what"


def _what(slots: dict[str, str], answer: str) -> str:
    """ "who or what" for an object of "by", "to" and the like with a capital, which may be a person; else "what"."""
    named = answer[:1].isupper() and slots.get("p") in ("by", "to", "for", "with", "after", "against")
    return "who or what" if named else "what"


def _short(answer: str) -> str:
    """The answer up to a comma, without a place behind a number and without quotation marks. "his birth, India" gives
    "India"."""
    first, *others = _ANOTHER.split(answer)
    if others and _OWN.match(first):
        first = others[0]
    return _PLACED.sub(r"\1", first).strip(" \"“”«»'.")


def _filled(text: str, slots: dict[str, str], lang: str) -> str:
    """The text with its slots filled; a slot name with a capital capitalises its value."""

    def of(match: re.Match[str]) -> str:
        name = match[1]
        found = slots[name] if name in slots else slots[name.lower()]
        return found if name in slots else found[:1].upper() + found[1:]

    written = re.sub(r"{(\w+)}", of, text)
    return re.sub(r" +(?=[.,?])", "", re.sub(r" {2,}", " ", written)) if lang == "en" else written


def _opened(sentence: str, answer: str) -> tuple[str, str]:
    """The sentence up to the answer (empty unless the answer ends it), and the sentence with a gap for the answer."""
    before, there, after = sentence.rpartition(answer)
    if not there or not before.strip():
        return "", ""
    return ("" if plain_words(after).words else before.strip()), f"{before}___{after}".strip()


def _by_gap(sentence: str) -> Asked:
    """A gap question for the last number, else the name at the end, else the last words."""
    bare = re.sub(r"[\s.!?。！？]+$", "", sentence[:SENTENCE_MAX].strip())
    numbers = _SALIENT.findall(bare)
    name = _NAME.search(bare)
    words = bare.split()
    if numbers and not bare.startswith(numbers[-1]):
        answer = numbers[-1]
    elif name and name.start():
        answer = name.group()
    elif len(words) > 1:
        answer = _tail(words)
    else:
        answer = bare[-max(1, len(bare) // 3) :]
    stem, gap = _opened(sentence[:SENTENCE_MAX], answer)
    return Asked(answer, (), (), stem, gap, "", not answer[:1].isdigit(), sentence)


def _tail(words: list[str]) -> str:
    tail = words[-min(TAIL, max(1, len(words) // 3)) :]
    while len(tail) > 1 and tail[0].lower() in ARTICLES:
        tail = tail[1:]
    return " ".join(tail)
