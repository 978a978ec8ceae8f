"""Encodes a conversation with several learned answers: token ids and the token mask. The whole conversation is rendered
once; turns are located by the template's own marks, or by rendering it up to each of them.

A turn that the whole text shows differently from how the model wrote it is left out. Used for rows of data sets; before
rules 3 for all conversations.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from apollod.core.events import Sampled
from apollod.errors import RecordRefused
from apollod.trainer.objectives.chat_template import DATE, ChatTemplate, as_served
from apollod.trainer.objectives.tokens import Span, decoded, end_of_turn, pieces, shared_start
from apollod.wire.records import MessagesRecord
from apollod.wire.thoughts import past_thought

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


def tokenise_conversation(
    tokenizer: PreTrainedTokenizerBase, record: MessagesRecord, rules: int
) -> tuple[list[int], list[bool], int]:
    """ids, mask, and the number of turns to learn that were left out."""
    learned = [message.role == "assistant" and message.weight != 0 for message in record.messages]
    end = len(learned) - learned[::-1].index(True)  # turns after the last learned one cannot influence it
    messages = [as_served(message) for message in record.messages[:end]]
    rendering = _Rendering(tokenizer, messages, record.tools or None)
    said = rendering.learned(learned[:end])
    spans = said.spans if rules == 1 or not said.marked else _through_the_end_of_turn(tokenizer, said)
    spans = spans if rules < 4 else [_past_thought(said.text, span) for span in spans]
    if record.sampled:
        turns = [i for i, want in enumerate(learned[:end]) if want]
        taken = dict(zip(turns, record.sampled, strict=True))
        return *_as_sampled(tokenizer, rendering, said.text, spans, taken), said.left_out
    ids, offsets = pieces(tokenizer, said.text, [] if rules == 1 else [start for start, _ in spans])
    return ids, _mask(offsets, spans), said.left_out


def _past_thought(text: str, span: Span) -> Span:
    """Span without an empty thought at its head."""
    start, end = span
    return len(past_thought(text[:start], text[start:end])[0]), end


def _mask(offsets: list[Span], spans: list[Span]) -> list[bool]:
    return [any(start < b and a < end for a, b in spans) for start, end in offsets]


def _as_sampled(
    tokenizer: PreTrainedTokenizerBase, rendering: "_Rendering", text: str, spans: list[Span],
    taken: Mapping[int, Sampled],
) -> tuple[list[int], list[bool]]:  # fmt: skip
    """The conversation with the sampled tokens where they are known (`taken`, by message), and the mask: these, and the
    spans of the other learned turns.

    The last turn comes after the engine's own prompt. An earlier one has to stand whole in the text, like any learned
    turn; if it was cut off, the token that ends a turn follows and is not learned.
    """
    ids, mask, at = list[int](), list[bool](), 0
    last = max(taken)
    for turn, sampled in taken.items():
        if not sampled.answer:
            continue
        before = rendering.before(turn)
        span = rendering.turn(turn, text) if turn != last else (len(before), len(text))
        if span is None:
            continue
        if turn == last and before[:at] != text[:at]:
            raise RecordRefused("the chat template rewrites what is before the answer", "report this model's template")
        whole = text if turn != last else before
        if not at and sampled.prompt and decoded(tokenizer, sampled.prompt) == before:
            piece, learned = list(sampled.prompt), [False] * len(sampled.prompt)
        else:
            inside = [(a - at, b - at) for a, b in spans if at <= a and b <= span[0]]
            piece, offsets = pieces(tokenizer, whole[at : span[0]], [a for a, _ in inside])
            learned = _mask(offsets, inside)
        ids += [*piece, *sampled.answer]
        mask += [*learned, *[True] * len(sampled.answer)]
        ender = end_of_turn(tokenizer, text[: span[1]])
        cut_off = bool(ender) and not decoded(tokenizer, sampled.answer[-1:]).endswith(ender)
        at = span[1] - len(ender) if cut_off else span[1]
    if taken[last].answer:
        return ids, mask
    inside = [(a - at, b - at) for a, b in spans if at <= a]
    piece, offsets = pieces(tokenizer, text[at:], [a for a, _ in inside])
    return ids + piece, mask + _mask(offsets, inside)


class _Said(NamedTuple):
    """A rendered conversation. `marked`: the template itself marks the spans; `left_out`: number of wanted turns that
    the text shows differently from how the model wrote them."""

    text: str
    spans: list[Span]
    marked: bool
    left_out: int


def _through_the_end_of_turn(tokenizer: PreTrainedTokenizerBase, said: _Said) -> list[Span]:
    """Marked spans extended by the token that ends a turn, which marks often omit: without it the model does not learn
    to stop."""
    ender = end_of_turn(tokenizer, said.text)
    spans: list[Span] = []
    for start, end in said.spans:
        gap = len(said.text) - end - len(said.text[end:].lstrip())
        follows = bool(ender) and said.text.startswith(ender, end + gap)
        spans.append((start, end + gap + len(ender) if follows else end))
    return spans


class _Rendering:
    """A conversation rendered by the model's chat template."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], tools: list[Any] | None
    ) -> None:
        self._tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer)
        self._messages = messages
        self._tools = tools

    def learned(self, wanted: list[bool]) -> _Said:
        """The text, and the spans of the wanted turns; the last message is one of them."""
        text = self._render(len(wanted))
        if spans := self._marked(wanted):
            return _Said(text, spans, True, 0)
        spans = [span for i, want in enumerate(wanted[:-1]) if want and (span := self.turn(i, text))]
        spans.append(self._last_turn(text))
        return _Said(text, spans, False, sum(wanted) - len(spans))

    def _render(self, count: int, **options: Any) -> str:
        """The first `count` messages as text."""
        return self._template.render(self._messages[:count], self._tools, **options)

    def _marked(self, wanted: list[bool]) -> list[Span]:
        """Spans that the template itself marks with `{% generation %}`. Empty without such marks, or if they cannot be
        assigned to messages."""
        if not _GENERATION.search(self._tokenizer.get_chat_template(tools=self._tools)):
            return []
        encoded: Any = self._tokenizer.apply_chat_template(
            self._messages[: len(wanted)], tools=self._tools, strftime_now=DATE.strftime, tokenize=True,
            return_dict=True, return_assistant_tokens_mask=True, tokenizer_kwargs={"return_offsets_mapping": True},
        )  # fmt: skip
        runs: list[list[Span]] = [[]]
        for marked, offsets in zip(encoded["assistant_masks"], encoded["offset_mapping"], strict=True):
            if marked:
                runs[-1].append(offsets)
            elif runs[-1]:
                runs.append([])
        spans = [(run[0][0], run[-1][1]) for run in runs if run]
        turns = [i for i, message in enumerate(self._messages) if message["role"] == "assistant"]
        if len(spans) == len(turns):
            return [span for i, span in zip(turns, spans, strict=True) if wanted[i]]
        return spans if all(wanted[i] for i in turns) else []

    def before(self, i: int) -> str:
        """Prompt of message `i`: the conversation before it, with the generation prompt."""
        return str(self._render(i, add_generation_prompt=True))

    def turn(self, i: int, text: str) -> Span | None:
        """Span of message `i`, if the whole text holds the turn as the model wrote it.

        Templates that drop the thinking of earlier turns show them differently; those are not learned.
        """
        try:
            before = self.before(i)
            through = self._render(i + 1).rstrip()  # without the text behind the token that ends the turn
        except RecordRefused:  # the template does not accept this beginning alone
            return None
        whole = through.startswith(before) and text.startswith(through)
        return (len(before), len(through)) if whole else None

    def _last_turn(self, text: str) -> Span:
        """Span of the last message. If its rendering omits the end of the generation prompt (an opened `<think>`), it
        starts where the two diverge."""
        before = len(self._messages) - 1
        if not before:
            raise RecordRefused("nothing comes before the answer", "put the question before it")
        start = shared_start(self.before(before), text)
        if start < len(self._render(before).rstrip()):
            raise RecordRefused("the chat template rewrites what is before the answer", "report this model's template")
        return (start, len(text.rstrip()))
