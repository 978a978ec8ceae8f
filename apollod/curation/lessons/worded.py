"""The wordings of a lesson: as it was given, by the frames that ship, and as a model imagined them."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from apollod.core.lessons.wording import Given, Worded, Wording
from apollod.curation.lessons.frame_table import Use, frames
from apollod.curation.lessons.near_copies import key_of, leaks, question_key

PRACTICE_MAX, HELD_OUT_MAX = 8, 4
"""wordings from frames; imagined ones come on top"""


def wordings(given: Given, imagined: Sequence[Wording] = (), imagined_held_out: Sequence[Wording] = ()) -> Worded:
    """Practice wordings and held-out ones. What was given itself is practised, never held out."""
    question, answer, stem = _asked(given)
    dropped = Counter[str]()
    says = given.answer.strip() or given.statement.strip()
    first = [Wording(question, answer, "given", says)]
    practice = _kept([*first, *imagined, *_framed("practice", question, answer, stem, says)], dropped)
    asked = {key_of(one.prompt) for one in practice}
    held_out = _kept([*imagined_held_out, *_framed("held_out", question, answer, stem, says)], dropped, asked)
    return Worded(
        question,
        answer,
        question_key(question),
        tuple(practice[: PRACTICE_MAX + len(imagined)]),
        tuple(held_out[: HELD_OUT_MAX + len(imagined_held_out)]),
        dict(sorted(dropped.items())),
    )


def _asked(given: Given) -> tuple[str, str, str]:
    """Question, answer and the statement up to the answer, of which a statement alone has no question."""
    if given.question:
        return given.question.strip(), given.answer.strip(), ""
    found = re.fullmatch(r"(.*\s)(\S+?)[.!。]*", given.statement.strip(), re.DOTALL)
    stem, answer = (found[1].strip(), found[2]) if found else ("", given.statement.strip())
    return (f"Complete: {stem} ..." if stem else f"What do you know about {answer[:1]}?"), answer, stem


def _framed(use: Use, question: str, answer: str, stem: str, says: str) -> Iterator[Wording]:
    slots = {"question": question, "stem": stem}
    for frame in frames("en", use):
        slot = re.findall(r"{(\w+)}", frame.text)[0]
        if slots.get(slot):
            yield Wording(frame.text.replace(f"{{{slot}}}", slots[slot]), answer, frame.id, says)


def _kept(
    found: Iterable[Wording], dropped: Counter[str], practised: Collection[tuple[str, ...]] = ()
) -> list[Wording]:
    kept, seen = list[Wording](), set(practised)
    for wording in found:
        if leaks(wording):
            dropped["leak"] += 1
        elif (key := key_of(wording.prompt)) in seen:
            dropped["near-copy"] += 1
        else:
            seen.add(key)
            kept.append(wording)
    return kept
