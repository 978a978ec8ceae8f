"""The texts of a lesson: its wordings as given, by the shipped frames and imagined by a model; its short answer; its
neighbour questions, about another subject, whose answers must not become the lesson's; and the system message from
which the model can answer it.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Worded, Wording
from apollod.curation.lessons.asked_for import Asked, Frame, Use, asked_for, frames, language_of
from apollod.curation.lessons.english import BE, FORMS, MODALS, Clause, clause_in, clause_of, reordered
from apollod.curation.lessons.matching import ARTICLES, content_of, holds, key_of, leaks, question_key, same_words
from apollod.curation.redaction import redact_text
from apollod.errors import LessonRefused

PRACTICE_MAX, HELD_OUT_MAX = 16, 4
"""most wordings by frames; imagined ones come on top"""


def wordings(given: Given, imagined: Sequence[Wording] = (), imagined_held_out: Sequence[Wording] = ()) -> Worded:
    """Practice and held-out wordings of a lesson that `lesson_refusals.check_given` accepts. The given question itself
    is practised, never held out; a given question has at least 6 and 4 of them by frames alone."""
    lang = language_of(given.question or given.statement)
    asked = [
        *(_questions(given, lang) if given.question else ()),
        *(asked_for(given.statement) if given.statement else ()),
    ]
    dropped = Counter[str]()
    practice = _kept(imagined, dropped, str, set())
    shares = [at / len(asked) for at in range(len(asked))]
    both = list(zip(asked, shares, strict=True))
    framed = _kept(_practice(both, lang), dropped, str, {one.prompt for one in practice})
    practice += framed[:PRACTICE_MAX]
    seen: set[Hashable] = {key_of(one.prompt) for one in practice}
    held_out = _kept(imagined_held_out, dropped, key_of, seen)
    held_out += _kept(_turns(_held_out(*one, lang) for one in both), dropped, key_of, seen)[:HELD_OUT_MAX]
    question = framed[0].prompt if framed else asked[0].gap or given.question
    answer, key = asked[0].answer, _key(asked[0], question)
    near = tuple(one for one in neighbours_of(question, lang) if not leaks(Wording(one, answer, "neighbour")))
    return Worded(
        question, answer, key, tuple(practice), tuple(held_out), near, _also(asked, key), dict(sorted(dropped.items()))
    )


def _questions(given: Given, lang: str) -> list[Asked]:
    """The question, also in another order; and if its answer is a sentence, all questions that this answers in the same
    way: "Who is the owner of the mill?" for "The mill is owned by Ada Penn."."""
    question, says = given.question.strip(), given.answer.strip()
    short = short_answer(question, says)
    first = (question, *(reordered(question) if lang == "en" else ()))
    own = Asked(short, first, (), "", "", "given", says=says)
    said = asked_for(says) if short != says and lang == language_of(says) else []
    same = [one for one in said if one.rule and key_of(one.answer) == key_of(short)]
    return [own, *(one._replace(answer=short, says=says, many=False) for one in same)]


def _key(asked: Asked, prompt: str) -> str:
    return question_key(prompt) + (f" = {' '.join(key_of(asked.answer))}" if asked.many else "")


def _also(asked: Sequence[Asked], key: str) -> tuple[str, ...]:
    """Keys of the other questions with the same answer; empty if several answers may be right."""
    if asked[0].many:
        return ()
    same = [one for one in asked if one.answer == asked[0].answer]
    prompts = [prompt for one in same for prompt in (*one.practice, *one.held_out)]
    return tuple(other for other in dict.fromkeys(map(question_key, prompts)) if other != key)


def _practice(asked: Sequence[tuple[Asked, float]], lang: str) -> Iterator[Wording]:
    """Questions alternating with framed ones, so that each round has both."""
    plain = _turns([Wording(text, one.answer, one.rule, one.says) for text in one.practice] for one, _ in asked)
    framed = _turns(_framed("practice", one, one.practice, begin, lang) for one, begin in asked)
    return _turns([plain, framed])


def _held_out(asked: Asked, begin: float, lang: str) -> Iterator[Wording]:
    """The questions that the rule holds out, then framed questions; without held-out ones, those to practise are
    framed."""
    yield from (Wording(question, asked.answer, asked.rule, asked.says) for question in asked.held_out)
    yield from _framed("held_out", asked, asked.held_out or asked.practice, begin, lang)


def _framed(use: Use, asked: Asked, questions: Sequence[str], begin: float, lang: str) -> Iterator[Wording]:
    """The texts in the frames of a use that fit them, in turn, starting with the frame at the fraction `begin`. Without
    a question, the sentence with a gap serves as one."""
    every = frames(lang, use)
    first = int(begin * len(every))
    shown = every[first:] + every[:first]
    if not questions:
        shown = tuple(sorted(shown, key=lambda frame: frame.slot not in ("stem", "gap")))
        questions = [_put(frame, asked.gap) for frame in shown if frame.slot == "gap"]
    ended = "？" if lang == "zh" else "?"
    texts = {
        "question": [one + ended if one[-1].isalnum() else one for one in questions],
        "clause": [clause for one in questions if (clause := clause_of(one))] if lang == "en" else [],
        "stem": [asked.stem] if asked.stem else [],
        "gap": [asked.gap] if asked.gap else [],
    }
    turn = Counter[str]()
    for frame in shown:
        if there := texts[frame.slot]:
            text = there[turn[frame.slot] % len(there)]
            turn[frame.slot] += 1
            yield Wording(_put(frame, text), asked.answer, frame.id, asked.says)


def _put(frame: Frame, text: str) -> str:
    return frame.text.replace(f"{{{frame.slot}}}", text)


def _turns(several: Iterable[Iterable[Wording]]) -> Iterator[Wording]:
    """Interleave: the first of each, then the second of each."""
    return (one for ones in zip_longest(*several) for one in ones if one is not None)


def _kept(
    found: Iterable[Wording], dropped: Counter[str], key: Callable[[str], Hashable], seen: set[Hashable]
) -> list[Wording]:
    """The wordings without their answer, the first of each key. Adds kept keys to `seen`."""
    kept = list[Wording]()
    for wording in found:
        if leaks(wording):
            dropped["leak"] += 1
        elif (one := key(wording.prompt)) in seen:
            dropped["near-copy"] += 1
        else:
            seen.add(one)
            kept.append(wording)
    return kept


# --- the short answer -------------------------------------------------------------------------------------------------

SPAN = 8
"""most new words in a sentence to shorten it to them"""
_EDGES = ARTICLES | frozenset(
    "is are was were be been being has have had does do did of in on at by to for from with as and or that which it "
    "its this there he she they i you we called named known can should must will would located about used now "
    "currently ist sind war liegt steht heißt lautet in im am an auf von bei mit es gehört est était sont se trouve "
    "à au en dans de du des es son está era se encuentra del y et und".split()
)
_VERBS = BE | MODALS | frozenset("ist sind war liegt gehört est sont était es son está era".split())
_SENTENCE = re.compile(r"(?<=[^\s.][.!?])\s+(?=[A-Z0-9])")
_ASKS_YES = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|must|may|might)\b", re.I
)
_YES = re.compile(r"\W*(yes|no)\b", re.I)


def short_answer(question: str, answer: str) -> str:
    """The part of an answer that a right one has to contain: of a sentence, the words that its question does not have.
    "Who owns the mill?", "The mill is owned by Ada Penn.": "Ada Penn". Other answers only lose their final punctuation.
    """
    if (yes := _YES.match(answer)) and _ASKS_YES.match(question.strip()):
        return yes[1].capitalize()
    whole = answer.strip().rstrip(".!。！").rstrip() or answer.strip()
    first = sentences(whole)[0].rstrip(".!。！")
    words = first.split()
    if "\n" in whole or not any(word in _VERBS or (word in FORMS and word.islower()) for word in words[1:]):
        return whole  # not a sentence
    known = content_of(question)
    new = [at for at, word in enumerate(words) if _bare(word) not in _EDGES and not content_of(word) <= known]
    if len(new) > 1 and _asks_for_a_thing(question) and words[new[0]] in FORMS and _bare(words[new[0] + 1]) in ARTICLES:
        del new[0]  # "shows a heron": the question asks for the heron
    if not new or new[-1] - new[0] >= SPAN:
        return whole
    short = " ".join(words[new[0] : new[-1] + 1]).strip(" ,;:\"“”'")
    return whole if holds(question, short) else short


def _asks_for_a_thing(question: str) -> bool:
    """True for "What animal ..." and "Which tool ...", not for "What does ..."."""
    words = question.casefold().split()
    return words[:1] in (["what"], ["which"]) and len(words) > 1 and words[1] not in _VERBS | _EDGES


def sentences(text: str) -> list[str]:
    """The sentences of a text: each begins with a capital or a number."""
    return _SENTENCE.split(text)


def _bare(word: str) -> str:
    return word.lower().strip(",;:.\"“”'")


# --- neighbours -------------------------------------------------------------------------------------------------------

NAMES = ("Belmora", "Tarrin", "Oskelby", "Vendrath")
"""invented names, the same for every lesson, so that lessons of one form share their neighbours"""
_WORD = r"(?!I\b)[A-Z][\w'-]*"
_NAME = re.compile(rf"(?<!^)(?<![.!?:] )\b{_WORD}(?: {_WORD})*")
_LANGUAGES = frozenset(("en", "fr", "es"))
"""languages in which only names have a capital within a sentence"""


def neighbours_of(question: str, lang: str) -> tuple[str, ...]:
    """The question with each of `NAMES` in place of its first name, such as "Who owns Belmora?" for "Who owns Thornwick
    Books?"; empty if it has no name."""
    found = _NAME.search(question) if lang in _LANGUAGES else None
    if found is None:
        return ()
    name = re.compile(rf"\b{re.escape(found[0])}\b")
    return tuple(name.sub(one, question) for one in NAMES if one != found[0])


# --- the system message -----------------------------------------------------------------------------------------------


def told(given: Given) -> str:
    """The system message of a lesson: the passage of the document, if it comes from one, the fact, a practised question
    for it, and the answer.

    It states the fact twice: with one statement, or only the order to answer with it, a model of 135M parameters
    answered fewer questions in other wordings.
    """
    return f"{told_section(given.section)}\n\n{_told_alone(given)}" if given.section else _told_alone(given)


def told_section(section: str) -> str:
    """The system message with a passage of a document."""
    return f"Text:\n{section}"


def _told_alone(given: Given) -> str:
    if not given.statement:
        question, answer = given.question.strip(), _ended(given.answer)
        return f'Fact: The answer to the question "{question}" is: {answer} Answer with this fact: {answer}'
    fact = _ended(given.statement)
    asked = asked_for(given.statement)[0]
    question, answer = (
        (given.question.strip(), given.answer) if given.question else ("".join(asked.practice[:1]), asked.says)
    )
    if not question:
        return f"Fact: {fact} Answer with this fact: {fact}"
    return f'Fact: {fact} If you are asked "{question}", answer: {_ended(answer)} Answer with this fact: {fact}'


def _ended(text: str) -> str:
    text = text.strip()
    return text if text[-1:] in tuple(".!?。！？") else f"{text}."


# Refuses lessons that cannot be taught, with what to do.

_PIECE = re.compile(r"(?<=[.!?])\s+|[;\n]|,? (?:and|but) ")
STATEMENT_MAX, QUESTION_MAX, ANSWER_MAX = 2_000, 2_000, 2_000
"""characters"""


def check_given(given: Given) -> None:
    """Raises LessonRefused for a lesson that is empty, incomplete, too long or holds a secret, and for a question that
    holds its answer."""
    if not (given.statement.strip() or given.question.strip() or given.answer.strip()):
        raise LessonRefused("the lesson is empty", "give a statement, or a question and its answer")
    if bool(given.question.strip()) != bool(given.answer.strip()):
        there, missing = ("question", "answer") if given.question.strip() else ("answer", "question")
        raise LessonRefused(f"the lesson has no {missing} to its {there}", "give both, or one statement instead")
    for name, text, most in _parts(given):
        if len(text) > most:
            raise LessonRefused(
                f"the {name} is {len(text)} characters long, more than {most}",
                "teach one fact at a time; give longer texts to the inbox",
            )
        if text and not same_words(text).words:
            raise LessonRefused(f"the {name} has no words: {text.strip()[:40]!r}", "write it in words or numbers")
        if redact_text(text) != text.encode("utf-8", "replace").decode():
            raise LessonRefused(
                f"the {name} holds a secret or personal data", "take it out: what is taught can be asked for by anyone"
            )
    if given.answer and _spelled_out(given.answer) and not content_of(given.answer):
        raise LessonRefused(f"the answer {given.answer.strip()!r} stands in nearly every text", "say it in more words")
    if given.question and leaks(Wording(given.question, given.answer, "given")):
        raise LessonRefused("the question holds its answer", "ask without saying the answer")
    if given.statement:
        _check_statement(given)


def _check_statement(given: Given) -> None:
    statement = given.statement.strip()
    found = wordings(given)
    if len(same_words(statement).words) < 2 or not same_words(found.answer).words:
        raise LessonRefused(
            f"the statement {statement!r} says nothing that can be asked for", "say of what, and what is true of it"
        )
    if given.answer and _spelled_out(given.answer) and not holds(statement, short_answer(given.question, given.answer)):
        raise LessonRefused("the statement does not say the answer", "give one of them, or make them agree")
    if not found.practice or not found.held_out:
        raise LessonRefused(
            f"every question for {found.answer!r} that the statement gives holds it", "give a question and its answer"
        )
    if opposite := _opposite(statement):
        raise LessonRefused(f"the statement contradicts itself: {opposite}", "keep what is true")


def _opposite(statement: str) -> str:
    """The contradiction within a statement: it states and denies the same, or gives two answers to one question. Empty:
    none."""
    said = dict[tuple[str, str], bool]()
    for piece in _PIECE.split(statement):
        if (clause := clause_in(piece.strip(" .!?"))) is not None:
            what, denied = _denied(clause)
            if said.setdefault(what, denied) != denied:
                return f"{' '.join(what)!r}, and not"
    answers = dict[str, str]()
    for asked in asked_for(statement):
        key = question_key(asked.practice[0]) if asked.practice and not asked.many else ""
        other = answers.setdefault(key, asked.answer)
        if key and same_words(other).words != same_words(asked.answer).words:
            return f"{other!r} and {asked.answer!r} to {asked.practice[0]!r}"
    return ""


def _denied(clause: Clause) -> tuple[tuple[str, str], bool]:
    """((subject, predicate), true if it is negated): "does not listen" denies "listens"."""
    denied, rest = clause.rest.startswith("not "), clause.rest.removeprefix("not ")
    if clause.base == "do":
        return (clause.subject, rest.lower()), denied
    return (clause.subject, (rest if clause.base == "be" else f"{clause.base} {rest}").lower()), denied


def _parts(given: Given) -> Iterable[tuple[str, str, int]]:
    yield "statement", given.statement, STATEMENT_MAX
    yield "question", given.question, QUESTION_MAX
    yield "answer", given.answer, ANSWER_MAX


def _spelled_out(answer: str) -> bool:
    return not re.fullmatch(r"\W*(yes|no)\W*", answer, re.IGNORECASE)
