"""The wordings of a lesson: as it was given, by the frames that ship, and as a model imagined them."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest

from apollod.core.lessons.wording import Given, Worded, Wording
from apollod.curation.lessons.asked_for import Asked, asked_for
from apollod.curation.lessons.embedded import clause_of
from apollod.curation.lessons.frame_table import Frame, Use, frames
from apollod.curation.lessons.languages import language_of
from apollod.curation.lessons.near_copies import key_of, leaks, question_key
from apollod.curation.lessons.short_answers import short_answer

PRACTICE_MAX, HELD_OUT_MAX = 8, 4
"""wordings by frames; imagined ones come on top"""


def wordings(given: Given, imagined: Sequence[Wording] = (), imagined_held_out: Sequence[Wording] = ()) -> Worded:
    """Practice wordings and held-out ones of what `lesson_refusals.check_given` lets pass. What was given itself is
    practised, never held out; what is given as a question has at least 6 and 4 of them by frames alone."""
    lang = language_of(given.question or given.statement)
    asked = [*([_question(given)] if given.question else ()), *(asked_for(given.statement) if given.statement else ())]
    dropped = Counter[str]()
    practice = _kept(imagined, dropped, str, set())
    framed = _kept(_turns(_practice(one, lang) for one in asked), dropped, str, {one.prompt for one in practice})
    practice += framed[:PRACTICE_MAX]
    seen: set[Hashable] = {key_of(one.prompt) for one in practice}
    held_out = _kept(imagined_held_out, dropped, key_of, seen)
    held_out += _kept(_turns(_held_out(one, lang) for one in asked), dropped, key_of, seen)[:HELD_OUT_MAX]
    question = framed[0].prompt if framed else asked[0].gap or given.question
    answer, key = asked[0].answer, _key(asked[0], question)
    return Worded(question, answer, key, tuple(practice), tuple(held_out), dict(sorted(dropped.items())))


def _question(given: Given) -> Asked:
    question = given.question.strip()
    return Asked(short_answer(question, given.answer), (question,), (), "", "", "given", says=given.answer.strip())


def _key(asked: Asked, prompt: str) -> str:
    return question_key(prompt) + (f" = {' '.join(key_of(asked.answer))}" if asked.many else "")


def _practice(asked: Asked, lang: str) -> Iterator[Wording]:
    """Questions of the rule as they are, then wrapped in turn."""
    yield from (Wording(question, asked.answer, asked.rule, asked.says) for question in asked.practice)
    yield from _framed("practice", asked, asked.practice, lang)


def _held_out(asked: Asked, lang: str) -> Iterator[Wording]:
    """Questions that the rule holds out; without them the given one inside of other sentences."""
    yield from (Wording(question, asked.answer, asked.rule, asked.says) for question in asked.held_out)
    yield from _framed("held_out", asked, asked.held_out or asked.practice, lang)


def _framed(use: Use, asked: Asked, questions: Sequence[str], lang: str) -> Iterator[Wording]:
    """Each frame of a use with what fits its slot, of several texts in turn. Where there is no question, the sentence
    with a gap is one."""
    shown = frames(lang, use)
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
    """The first of each, then the second of each."""
    return (one for ones in zip_longest(*several) for one in ones if one is not None)


def _kept(
    found: Iterable[Wording], dropped: Counter[str], key: Callable[[str], Hashable], seen: set[Hashable]
) -> list[Wording]:
    """Those that hold no answer, of several with the same key the first. What is kept has been seen from then on."""
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
