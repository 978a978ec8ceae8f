"""The wordings of a lesson: as given, by the shipped frames, and imagined by a model."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest

from apollod.core.lessons.wording import Given, Worded, Wording
from apollod.curation.lessons.asked_for import Asked, asked_for
from apollod.curation.lessons.embedded import clause_of, reordered
from apollod.curation.lessons.frame_table import Frame, Use, frames
from apollod.curation.lessons.languages import language_of
from apollod.curation.lessons.near_copies import key_of, leaks, question_key
from apollod.curation.lessons.neighbours import neighbours_of
from apollod.curation.lessons.short_answers import short_answer

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
