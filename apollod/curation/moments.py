"""Turns a moment of a conversation into examples: one per answer, each with as much preceding context as fits a step.

Pure. The rules come from the configuration of the source; the same moment under the same rules gives the same records.
The context before an answer is bounded here by characters, so that the journal does not store a conversation once per
answer, and in the trainer by tokens, with the same rules (`wire.context_window`). An answer too long for one step is
split into parts, one example each (docs/decisions/0024).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from apollod.core.facts.intake.events import Origin, Removed
from apollod.core.facts.intake.inputs import PARTS_MAX
from apollod.core.inputs import Response
from apollod.core.surroundings import SurroundingKind
from apollod.curation.conversation import Moment, Opinion, Said, is_learned
from apollod.curation.formats.reader import Found
from apollod.curation.preferences import RATED_BAD, Preferences, compared
from apollod.curation.responses import Answer, Taught, answer_of, taught
from apollod.curation.stripping import INSTRUCTION, TOOLS, Stripping, strip, strip_one
from apollod.curation.surrounding_texts import placed
from apollod.errors import RecordRefused
from apollod.wire.context_window import INSTRUCTING, called_of, shortened, size_of, window
from apollod.wire.records import Form, Record, record_of_forms, turn_json

CHARACTERS_PER_TOKEN = 4  # generous estimate for the context; the trainer cuts the rest by tokens
TOOLS_SHARE = 4  # definitions of tools that are not called take at most a quarter of the context
BYTES_PER_TOKEN = 2  # lower estimate for an answer in ASCII; other letters may take a token per byte

WITHOUT = "said without the instruction"
OTHERS = "another model's answers"


class Rules(msgspec.Struct, frozen=True):
    """Rules for learning from a source."""

    models: tuple[str, ...] = ("apollo",)
    """models whose answers are learned; those of others are context. `*`: all models"""
    sidechains: bool = False
    """learn from agents that another agent started"""
    context_tokens: int = 4096
    """approximate limit of the conversation before the learned answer"""
    stripping: Stripping = Stripping()
    surroundings: tuple[SurroundingKind, ...] = ()
    """contexts for answers that stripping left without any; empty: they stay without"""
    preferences: Preferences = Preferences()


class Learned(NamedTuple):
    """An example to add."""

    record: Record
    taught: Taught
    origin: Origin = Origin()
    place: int = -1
    """index of the learned answer in the moment"""
    removed: tuple[Removed, ...] = ()
    line: int = 0
    """line of the source in which the answer ends; 0: the line of the whole record"""
    rejected: bool = False
    """it is learned as a bad answer"""


class Gathered(NamedTuple):
    """Examples made of a moment. `found`: number of answers in it; `unlearned`: number of answers that give no example,
    by reason ("no answer" for a moment without any)."""

    learned: tuple[Learned, ...] = ()
    unlearned: Mapping[str, int] = {}
    found: int = 0


def learn(moment: Moment, rules: Rules) -> Gathered:
    """The examples of a moment, one for each answer (or part of a long one), in order."""
    answers = [n for n in range(moment.fresh, len(moment.messages)) if _is_answer(moment.messages[n].message)]
    if not answers:
        return Gathered(unlearned={"no answer": 1})
    if why := _unlearned(moment, rules):
        return Gathered(unlearned={why: len(answers)}, found=len(answers))
    conversation = _Conversation(moment, rules)
    learned, unlearned = list[Learned](), Counter[str]()
    for n in answers:
        if not may_be_learned(moment, moment.messages[n], rules):
            unlearned[OTHERS] += 1
            continue
        if conversation.uninstructed(n):
            unlearned[WITHOUT] += 1
            continue
        try:
            learned += _by_opinion(conversation.examples(n), moment.messages[n].opinion, rules)
        except RecordRefused as error:
            unlearned[error.line()] += 1
    return Gathered(tuple(learned), unlearned, len(answers))


def _unlearned(moment: Moment, rules: Rules) -> str:
    """Reason to learn no answer of this moment, independent of its content; empty: none."""
    if moment.session.sidechain and not rules.sidechains:
        return "a sidechain"
    if moment.unlearned and not rules.preferences.takes_bad(moment.messages[-1].opinion):
        return moment.unlearned
    return f"taken back by the user ({moment.taken_back})" if moment.taken_back else ""


def learn_record(record: Record, rules: Rules) -> Learned | str:
    """The example of a record in training format, changed only by stripping, or the reason why there is none."""
    if record.kind != "messages":
        return WITHOUT if rules.stripping.instruction else Learned(record, taught(record))
    form = msgspec.json.decode(record.canonical)
    messages, tools, removed = strip(form["messages"], rules.stripping, form.get("tools", ()))
    if rules.stripping.instruction and all(one.why != INSTRUCTION for one in removed):
        return WITHOUT
    if removed:
        try:
            record = record_of_forms(messages, tools)._replace(tier=record.tier)
        except RecordRefused as error:
            return error.line()
    return Learned(record, taught(record), removed=removed)


def gathered(item: Moment | Found, rules: Rules) -> Gathered:
    """Examples from one item of a reader; a refused record gives only its reason."""
    if isinstance(item, Moment):
        found = learn(item, rules)
        return found._replace(learned=tuple(_surrounded(one, rules) for one in found.learned))
    learned = learn_record(item.record, rules)
    if isinstance(learned, str):
        return Gathered(unlearned={learned: 1}, found=1)
    try:
        made = _by_opinion([_surrounded(learned, rules)], item.opinion, rules)
    except RecordRefused as error:
        return Gathered(unlearned={error.line(): 1}, found=1)
    return Gathered(tuple(made), {} if made else {RATED_BAD: 1}, max(1, len(learned.taught.responses)))


def _by_opinion(found: list[Learned], opinion: Opinion | None, rules: Rules) -> list[Learned]:
    """The examples of an answer, or the comparisons to learn in their place. Raises RecordRefused."""
    if opinion is None or not found:
        return found
    *parts, last = found
    made = compared(last.record, opinion, rules.preferences)
    return [*parts, *(last._replace(record=one, rejected=not opinion.good) for one in made)]


def _surrounded(learned: Learned, rules: Rules) -> Learned:
    """The example in a surrounding, if something was stripped from it: an answer given without any instruction stays
    where it stands."""
    if not rules.surroundings or not learned.removed or learned.record.kind != "messages":
        return learned
    found = placed(learned.record, learned.removed, rules.surroundings)
    return learned._replace(record=found.record, removed=found.removed)


def answer_key(moment: Moment, place: int, rules: Rules) -> str:
    """The key of an answer of a moment, the same wherever it is learned; "" if there is nothing to learn."""
    form = moment.messages[place].message
    try:
        return _Conversation(moment, rules).answer(place).key if _is_answer(form) else ""
    except RecordRefused:
        return ""


def may_be_learned(moment: Moment, said: Said, rules: Rules) -> bool:
    """True if the answer comes from a model whose answers are learned."""
    model = said.model or moment.session.model
    return "*" in rules.models or model in rules.models


def parts_of(answer: Form, context_tokens: int) -> int:
    """Number of parts to split an answer into: one, unless it might not fit into a step beside a prompt. Raises
    RecordRefused for too many."""
    if size_of(answer) * 4 <= context_tokens:  # nearly always; a character has at most four bytes
        return 1
    written = turn_json(answer)
    ascii_ = sum(byte < 0x80 for byte in written)
    tokens = ascii_ // BYTES_PER_TOKEN + len(written) - ascii_
    if tokens * 8 <= context_tokens * 5:
        return 1
    parts = -(-tokens * 2 // context_tokens)
    if parts > PARTS_MAX:
        raise RecordRefused(
            f"an answer too long to be learned in {PARTS_MAX} parts", "raise [trainer] max_tokens and context_tokens"
        )
    return parts


def _is_answer(form: Form) -> bool:
    return is_learned(form) and not _is_empty(form)


def _is_empty(form: Form) -> bool:
    """True if nothing was said or called; thinking alone is a turn that was cut off."""
    return form["role"] == "assistant" and not (form.get("tool_calls") or form["content"].strip())


class _Left(NamedTuple):
    """A message after stripping. `form` None: all of it was stripped."""

    form: Form | None
    removed: Sequence[Removed] = ()


class _Conversation:
    """A moment whose answers are extracted one by one; each message is stripped once and cached."""

    def __init__(self, moment: Moment, rules: Rules) -> None:
        self._moment = moment
        self._rules = rules
        session, messages = moment.session, moment.messages
        told = session.system and (not messages or messages[0].message["role"] not in ("system",))
        self._shift = 1 if told else 0  # of indices, relative to those of the moment
        self._said = (Said({"content": session.system, "role": "system"}), *messages) if told else messages
        self._roles = [said.message["role"] for said in self._said]
        self._left: dict[int, _Left] = {}

    def answer(self, place: int) -> Answer:
        """Identity of the answer, independent of the context kept in a record."""
        n = place + self._shift
        return answer_of(self._newest(n, {"user"}), self._newest(n, {"user", "tool", *INSTRUCTING}), self._form(n))

    def uninstructed(self, place: int) -> bool:
        """True if the answer came before any instruction that stripping searches for."""
        return self._instructed is not None and place + self._shift <= self._instructed

    def examples(self, place: int) -> list[Learned]:
        """The example of an answer, or one for each of its parts. Raises RecordRefused."""
        n = place + self._shift
        answer, form = self.answer(place), self._form(n)
        parts = parts_of(form, self._rules.context_tokens)
        before = self._before(n)
        made = []
        for part in range(parts):
            target, text = form, answer.text
            if parts > 1:
                target = {key: value for key, value in sorted({**form, "part": [part, parts]}.items())}
                text = text[len(text) * part // parts : len(text) * (part + 1) // parts]
            written = self._said[n].turn if target is self._said[n].message else turn_json(target)
            turns = [*before.turns, written]
            record = record_of_forms([*before.forms, target], self._tools([*before.forms, target]), turns)
            end = len(b'{"messages":[') + sum(map(len, turns)) + len(turns) - 2
            learned = Taught((Response(answer.key, end, part=part),), text)
            removed = (*self._tools_removed, *before.removed)
            made.append(Learned(record, learned, self._origin(n, before), place, removed, self._line(place)))
        return made

    def _before(self, n: int) -> "_Before":
        """Context before message n."""
        room = self._rules.context_tokens * CHARACTERS_PER_TOKEN
        roles = self._roles[:n]
        prompts = (k for k in range(n - 1, -1, -1) if self._said[k].prompt and self._look(k).form is not None)
        asked = next(prompts, None)
        if asked is None:
            asked = next((k for k in range(n - 1, -1, -1) if roles[k] == "user" and self._look(k).form), None)
        seen = window(roles, asked, self._size, room)
        forms = {k: form for k in seen.kept if (form := self._look(k).form) is not None and not _is_empty(form)}
        tight = set[int]()
        for group, most in seen.tight:
            members = [k for k in group if k in forms]
            for k, form in zip(members, shortened([forms[k] for k in members], most), strict=True):
                tight |= {k} if form != forms[k] else set()
                forms[k] = form
        removed, kept = list[Removed](), list[Form]()
        turns = list[bytes]()
        for k in seen.kept:
            removed += [_moved(one, len(kept), forms.get(k)) for one in self._look(k).removed]
            if k in forms:
                form, turn = self._as_context(forms[k], self._said[k])
                kept.append(form)
                turns.append(turn)
        return _Before(kept, turns, removed, self._spoken[n] - len(forms), len(tight))

    def _as_context(self, form: Form, said: Said) -> tuple[Form, bytes]:
        """A message before the answer, and its JSON; `weight` is the last key of the canonical form."""
        written = said.turn if form is said.message else turn_json(form)
        if form["role"] != "assistant" or form.get("weight") == 0:
            return form, written
        return {**form, "weight": 0}, written[:-1] + b',"weight":0}'

    def _look(self, k: int) -> _Left:
        left = self._left.get(k)
        if left is None:
            left = self._left[k] = _Left(*strip_one(self._said[k].message, self._rules.stripping))
        return left

    def _form(self, k: int) -> Form:
        return self._said[k].message

    def _size(self, k: int) -> int:
        form = self._look(k).form
        return 0 if form is None else size_of(form)

    def _newest(self, n: int, roles: set[str]) -> str:
        """Content of the last message before n of one of these roles, after stripping."""
        for k in range(n - 1, -1, -1):
            if self._roles[k] in roles and (form := self._look(k).form) is not None:
                return str(form["content"])
        return ""

    @cached_property
    def _spoken(self) -> list[int]:
        """Number of messages before each that are not empty."""
        return list(accumulate((not _is_empty(said.message) for said in self._said), initial=0))

    @cached_property
    def _instructed(self) -> int | None:
        """Index of the first message with an instruction to strip, one past the last message if none has it; None if
        the rules strip no instruction."""
        if not self._rules.stripping.instruction:
            return None
        told = (k for k in range(len(self._said)) if any(one.why == INSTRUCTION for one in self._look(k).removed))
        return next(told, len(self._said))

    @cached_property
    def _tools_removed(self) -> tuple[Removed, ...]:
        tools = self._moment.session.tools
        if not tools or self._rules.stripping.level != "all":
            return ()
        return (Removed(0, -1, msgspec.json.encode(list(tools)).decode(), TOOLS),)

    @cached_property
    def _tools_size(self) -> int:
        return len(msgspec.json.encode(self._moment.session.tools))

    def _tools(self, forms: Sequence[Form]) -> Sequence[dict[str, Any]]:
        """Tools offered to the model; only the called ones, where all would take too much of the context."""
        tools = self._moment.session.tools
        if not tools or self._rules.stripping.level == "all":
            return ()
        if self._tools_size <= self._rules.context_tokens * CHARACTERS_PER_TOKEN // TOOLS_SHARE:
            return tools
        return called_of(tools, forms)

    def _origin(self, n: int, before: "_Before") -> Origin:
        said, session = self._said[n], self._moment.session
        lines = self._moment.lines
        return Origin(
            session=session.id,
            agent=session.agent,
            version=session.version,
            records=(said.id,) if said.id else (),
            responses=(said.response,) if said.response else (),
            model=said.model or session.model,
            first_line=lines[n - self._shift] if lines else self._moment.first_line,
            left_out=before.left_out,
            shortened=before.shortened,
        )

    def _line(self, place: int) -> int:
        """Source line in which an answer ends: before the next message begins."""
        lines = self._moment.lines
        if place + 1 >= len(lines):
            return self._moment.line
        return max(lines[place], lines[place + 1] - 1)


class _Before(NamedTuple):
    """Context before an answer. `turns`: each turn's JSON in the record."""

    forms: list[Form]
    turns: list[bytes]
    removed: list[Removed]
    left_out: int
    shortened: int


def _moved(one: Removed, place: int, form: Form | None) -> Removed:
    """Move a removal to its message's place in the record; in a shortened message its offset is clamped to the end."""
    at = one.at if one.at < 0 or form is None else min(one.at, len(form["content"]))
    return msgspec.structs.replace(one, place=place, at=at)
