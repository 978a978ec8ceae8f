"""What is learned of a moment: which of its answers, after how much of what was said before.

Pure. The rules come from the configuration of the source; the same moment under the same rules gives the same record.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from apollod.core.intake.events import Origin, Removed
from apollod.curation.conversation import Moment, Said
from apollod.curation.formats.reader import Found
from apollod.curation.responses import Taught, taught, taught_by
from apollod.curation.stripping import INSTRUCTION, Stripping, strip
from apollod.errors import RecordRefused
from apollod.wire.records import Form, Record, record_of_forms, turn_json

CHARACTERS_PER_TOKEN = 4  # for how much context is taken; what is too much is cut by tokens in the trainer


WITHOUT = "said without the instruction"


class Rules(msgspec.Struct, frozen=True):
    """What is learned of a source."""

    models: tuple[str, ...] = ("apollo",)
    """whose answers are learned; those of others are context. `*`: everybody's"""
    sidechains: bool = False
    """learn what agents did that another one started?"""
    context_tokens: int = 4096
    """of conversation before what is learned, roughly"""
    stripping: Stripping = Stripping()


class Learned(NamedTuple):
    """An example to be."""

    record: Record
    taught: Taught
    origin: Origin = Origin()
    places: tuple[int, ...] = ()
    """indices in the moment of the answers that are learned"""
    removed: tuple[Removed, ...] = ()


def learn_item(item: Moment | Found, rules: Rules) -> Learned | str:
    """The example of what a reader found, or the reason why there is none."""
    return learn(item, rules) if isinstance(item, Moment) else learn_record(item.record, rules)


def learn(moment: Moment, rules: Rules) -> Learned | str:
    """The example of a moment, or the reason why there is none."""
    if moment.session.sidechain and not rules.sidechains:
        return "a sidechain"
    if moment.unlearned:
        return moment.unlearned
    if moment.taken_back:
        return f"taken back by the user ({moment.taken_back})"
    answers = [n for n in range(moment.fresh, len(moment.messages)) if _is_answer(moment.messages[n].message)]
    chosen = [n for n in answers if may_be_learned(moment, moment.messages[n], rules)]
    if not answers:
        return "no answer"
    if not chosen:
        return "another model's answers"
    start = _start(moment, rules.context_tokens * CHARACTERS_PER_TOKEN)
    shown = [(n, moment.messages[n]) for n in range(start, chosen[-1] + 1)]
    try:
        written = [_as_target(said, n in chosen) for n, said in shown if not _is_empty(said.message)]
        forms, tools, removed, turns = _stripped(moment, written, rules.stripping)
        record = record_of_forms(forms, tools, turns)
    except RecordRefused as error:
        return error.line()
    if _uninstructed(removed, rules.stripping):
        return WITHOUT
    said = [moment.messages[n] for n in chosen]
    origin = Origin(
        session=moment.session.id,
        agent=moment.session.agent,
        version=moment.session.version,
        records=tuple(one.id for one in said if one.id),
        responses=tuple(one.response for one in said if one.response),
        model=said[-1].model or moment.session.model,
        first_line=moment.first_line,
    )
    return Learned(record, taught_by(forms, turns), origin, tuple(chosen), removed)


def _stripped(
    moment: Moment, written: list[tuple[Form, bytes]], stripping: Stripping
) -> tuple[list[Form], list[dict[str, object]], tuple[Removed, ...], list[bytes]]:
    """What `strip` leaves of turns, with how each of them is written. Raises RecordRefused."""
    forms = [form for form, _ in written]
    if moment.session.system and (not forms or forms[0]["role"] != "system"):
        forms.insert(0, {"content": moment.session.system, "role": "system"})
    left, tools, removed = strip(forms, stripping, moment.session.tools)
    known = {id(form): turn for form, turn in written}  # a form of which nothing was taken is still the same object
    return left, tools, removed, [known.get(id(form)) or turn_json(form) for form in left]


def learn_record(record: Record, rules: Rules) -> Learned | str:
    """The same of a record that came as it is to be learned: only what is to be stripped is taken out."""
    if record.kind != "messages":
        return WITHOUT if rules.stripping.instruction else Learned(record, taught(record))
    form = msgspec.json.decode(record.canonical)
    messages, tools, removed = strip(form["messages"], rules.stripping, form.get("tools", ()))
    if _uninstructed(removed, rules.stripping):
        return WITHOUT
    if removed:
        try:
            record = record_of_forms(messages, tools)._replace(tier=record.tier)
        except RecordRefused as error:
            return error.line()
    return Learned(record, taught(record), removed=removed)


def _uninstructed(removed: Sequence[Removed], stripping: Stripping) -> bool:
    """Was it said without the instruction that was to be stripped?"""
    return bool(stripping.instruction) and all(one.why != INSTRUCTION for one in removed)


def _is_answer(form: Form) -> bool:
    return form["role"] == "assistant" and form.get("weight") != 0 and not _is_empty(form)


def _is_empty(form: Form) -> bool:
    """Nothing was said or called; thinking alone is a turn that was cut off."""
    return form["role"] == "assistant" and not (form.get("tool_calls") or form["content"].strip())


def may_be_learned(moment: Moment, said: Said, rules: Rules) -> bool:
    """Is it an answer of a model whose answers are learned?"""
    model = said.model or moment.session.model
    return "*" in rules.models or model in rules.models


def _as_target(said: Said, target: bool) -> tuple[Form, bytes]:
    """A turn as context, or as what is learned, and how it is written; `weight` is the last key of the canonical
    form. Raises RecordRefused."""
    form = said.message
    if form["role"] != "assistant" or target or form.get("weight") == 0:
        return form, said.turn
    return {**form, "weight": 0}, said.turn[:-1] + b',"weight":0}'


def _start(moment: Moment, characters: int) -> int:
    """Where the context begins: at the beginning if all of it up to what is learned fits, else at the earliest prompt
    from which it does; the prompt of this turn in any case."""
    start, size = moment.fresh, 0
    fits = start if start < len(moment.messages) and moment.messages[start].prompt else None
    for n in range(moment.fresh - 1, -1, -1):
        size += len(moment.messages[n].message["content"])
        if size > characters and fits is not None:
            break
        if moment.messages[n].prompt:
            fits = n
            if size > characters:
                break
    else:
        return 0
    return fits
