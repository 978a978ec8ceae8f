"""From a training record to token ids and the mask of what is learned.

Learned are the turns of the assistant, up to and with the token that ends them; for a completion its tokens and the
end of text; for a text everything. Messages go through the tokenizer's own chat template, in the form in which
vLLM hands them to it (wire/records.py normalises), so that the prompt is the one the served model sees, token by token:
where a token would reach over the end of the prompt, text is tokenised in two pieces. Marks such as `<|im_end|>` inside
a message's text become special tokens, as they do when vLLM serves the same message.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from apollod.core.events import Sampled
from apollod.errors import ModelRefused, RecordRefused
from apollod.explain import line_of
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.records import CompletionRecord, Message, MessagesRecord, TextRecord, TypedRecord

Span = tuple[int, int]
"""Characters [start, end) of a rendered conversation."""

DATE = date(2025, 1, 1)
"""Today, for templates that ask (`strftime_now`): the same record has to give the same tokens on every day."""

RULES = 2
"""of ids and masks. 1, as journals of before have it: tokens of a conversation may reach over the end of the prompt,
and where a template marks what is generated, the token that ends the turn is learned only if it is marked, too"""

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


def load_tokenizer(model_dir: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer; raises ModelRefused without one that knows character offsets."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelRefused(
            f"{model_dir} has no tokenizer that loads ({error})", "add tokenizer.json to the model directory"
        ) from error
    if not tokenizer.is_fast:
        raise ModelRefused(f"{model_dir} has only a slow tokenizer", "add tokenizer.json to the model directory")
    return tokenizer


def tokenise(tokenizer: PreTrainedTokenizerBase, record: TypedRecord, max_tokens: int, rules: int = RULES) -> Tokens:
    """Token ids and mask of a record, at most `max_tokens` long; raises RecordRefused with the reason."""
    left_out = 0
    match record:
        case MessagesRecord():
            ids, mask, left_out = _messages(tokenizer, record, rules)
        case CompletionRecord():
            ids, mask = _completion(tokenizer, record) if not record.sampled else _after_sampled(tokenizer, record)
        case TextRecord():
            ids = _ended(tokenizer, tokenizer(record.text)["input_ids"])
            mask = [True] * len(ids)
    if mask:
        mask[0] = False  # nothing comes before it
    return _cut(Tokens(ids, mask, left_out=left_out), max_tokens, tokenizer.bos_token_id)


def _cut(tokens: Tokens, max_tokens: int, bos: int | None) -> Tokens:
    """Drop what is too much from the left of the prompt; a beginning-of-text token stays."""
    if not tokens.targets:
        raise RecordRefused("no token to learn", "an answer must not be empty, nor every weight 0")
    first = tokens.mask.index(True)
    cut = max(0, len(tokens.ids) - max_tokens)
    if cut and cut >= first:  # at least one token has to stay before the first one that is learned
        answer = len(tokens.ids) - first
        raise RecordRefused(
            f"the answer alone has {answer} tokens, [trainer] max_tokens is {max_tokens}",
            "raise it or shorten the line",
        )
    head = 1 if cut and tokens.ids[0] == bos else 0
    ids, mask = tokens.ids, tokens.mask
    return Tokens(ids[:head] + ids[head + cut :], mask[:head] + mask[head + cut :], cut, left_out=tokens.left_out)


# --- prompt and completion, text ----------------------------------------------------------------------------------


def _completion(tokenizer: PreTrainedTokenizerBase, record: CompletionRecord) -> tuple[list[int], list[bool]]:
    """Prompt as the completions API tokenises it, then the completion, then the end of text."""
    prompt = _unended(tokenizer, tokenizer(record.prompt)["input_ids"])
    both = _unended(tokenizer, tokenizer(record.prompt + record.completion)["input_ids"])
    if both[: len(prompt)] != prompt:  # a token would straddle the boundary, where the served model starts a new one
        both = prompt + tokenizer(record.completion, add_special_tokens=False)["input_ids"]
    ids = _ended(tokenizer, both)
    answer = len(both) > len(prompt)  # the end alone is not worth learning
    return ids, [answer and i >= len(prompt) for i in range(len(ids))]


def _after_sampled(tokenizer: PreTrainedTokenizerBase, record: CompletionRecord) -> tuple[list[int], list[bool]]:
    """What the engine was asked, token by token, then what it sampled, or the completion as its text."""
    (sampled,) = record.sampled
    prompt, answer = list(sampled.prompt), list(sampled.answer)
    if not answer:
        answer = tokenizer(record.completion, add_special_tokens=False)["input_ids"] if record.completion else []
        end = [sampled.final] if sampled.final >= 0 else []
        answer = [*answer, *end] if end or not answer else _ended(tokenizer, answer)
    return prompt + answer, [i >= len(prompt) for i in range(len(prompt) + len(answer))]


def _ended(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    eos = tokenizer.eos_token_id
    return ids if eos is None or ids[-1:] == [eos] else [*ids, eos]


def _unended(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    """Without the end of text that a few tokenizers append to everything, the empty string included."""
    appended = tokenizer("")["input_ids"][-1:] == [tokenizer.eos_token_id]
    return ids[:-1] if appended else ids


# --- chat ---------------------------------------------------------------------------------------------------------


def _messages(
    tokenizer: PreTrainedTokenizerBase, record: MessagesRecord, rules: int
) -> tuple[list[int], list[bool], int]:
    """ids, mask, and how many turns are left out although they were to be learned."""
    if not tokenizer.chat_template:
        raise RecordRefused(
            "the model has no chat template", "add chat_template.jinja to the model directory, or use prompt/completion"
        )
    learned = [message.role == "assistant" and message.weight != 0 for message in record.messages]
    if not any(learned):
        raise RecordRefused("no assistant turn to learn", "give one of them weight 1")
    end = len(learned) - learned[::-1].index(True)  # what follows the last learned turn cannot influence it
    messages = [_as_served(message) for message in record.messages[:end]]
    rendering = _Rendering(tokenizer, messages, record.tools or None)
    said = rendering.learned(learned[:end])
    spans = said.spans if rules == 1 or not said.marked else _through_the_end_of_turn(tokenizer, said)
    if record.sampled:
        turns = [i for i, want in enumerate(learned[:end]) if want]
        taken = dict(zip(turns, record.sampled, strict=True))
        return *_as_sampled(tokenizer, rendering, said.text, spans, taken), said.left_out
    ids, offsets = _pieces(tokenizer, said.text, [] if rules == 1 else [start for start, _ in spans])
    return ids, _mask(offsets, spans), said.left_out


def _mask(offsets: list[Span], spans: list[Span]) -> list[bool]:
    return [any(start < b and a < end for a, b in spans) for start, end in offsets]


def _as_sampled(
    tokenizer: PreTrainedTokenizerBase, rendering: "_Rendering", text: str, spans: list[Span],
    taken: Mapping[int, Sampled],
) -> tuple[list[int], list[bool]]:  # fmt: skip
    """The conversation with the very tokens that the engine sampled where they are known (`taken`, by message), and the
    mask: these, and the spans of the other learned turns.

    The last turn comes after the prompt as the engine was given it. An earlier one has to stand whole in the text, as
    any that is learned; where it was cut off, the token that ends a turn follows and is not learned.
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
        if not at and sampled.prompt and _decoded(tokenizer, sampled.prompt) == before:
            piece, learned = list(sampled.prompt), [False] * len(sampled.prompt)
        else:
            inside = [(a - at, b - at) for a, b in spans if at <= a and b <= span[0]]
            piece, offsets = _pieces(tokenizer, whole[at : span[0]], [a for a, _ in inside])
            learned = _mask(offsets, inside)
        ids += [*piece, *sampled.answer]
        mask += [*learned, *[True] * len(sampled.answer)]
        ender = end_of_turn(tokenizer, text[: span[1]])
        cut_off = bool(ender) and not _decoded(tokenizer, sampled.answer[-1:]).endswith(ender)
        at = span[1] - len(ender) if cut_off else span[1]
    if taken[last].answer:
        return ids, mask
    inside = [(a - at, b - at) for a, b in spans if at <= a]
    piece, offsets = _pieces(tokenizer, text[at:], [a for a, _ in inside])
    return ids + piece, mask + _mask(offsets, inside)


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _pieces(tokenizer: PreTrainedTokenizerBase, text: str, starts: list[int]) -> tuple[list[int], list[Span]]:
    """ids and offsets of a text in which no token reaches over one of `starts`, where the served model begins to
    write."""
    ids, offsets = _encoded(tokenizer, text)
    starts = sorted(starts)
    crossed = {starts[at] for a, b in offsets if (at := bisect_right(starts, a)) < len(starts) and starts[at] < b}
    if not crossed:
        return ids, offsets
    ids, offsets = [], []
    for begin, end in pairwise([0, *sorted(crossed), len(text)]):
        piece, places = _encoded(tokenizer, text[begin:end])
        ids += piece
        offsets += [(begin + a, begin + b) for a, b in places]
    return ids, offsets


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[Span]]:
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(encoded["input_ids"]), list(encoded["offset_mapping"])


class _Said(NamedTuple):
    """A rendered conversation. `marked`: the spans are those that the template marks; `left_out`: turns that were
    wanted and that the text does not hold as the model wrote them."""

    text: str
    spans: list[Span]
    marked: bool
    left_out: int


def _through_the_end_of_turn(tokenizer: PreTrainedTokenizerBase, said: _Said) -> list[Span]:
    """Marked spans with the token that ends a turn, which marks often leave out: without it nobody learns to stop."""
    ender = end_of_turn(tokenizer, said.text)
    spans: list[Span] = []
    for start, end in said.spans:
        gap = len(said.text) - end - len(said.text[end:].lstrip())
        follows = bool(ender) and said.text.startswith(ender, end + gap)
        spans.append((start, end + gap + len(ender) if follows else end))
    return spans


def end_of_turn(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """The token with which the last turn of a text ends; empty where its last word is an ordinary one."""
    text = text.rstrip()
    return max((token for token in tokenizer.get_added_vocab() if text.endswith(token)), key=len, default="")


def template_problem(tokenizer: PreTrainedTokenizerBase) -> str:
    """What keeps conversations from being learned as they should be, whatever they say; empty where nothing does.

    Said once for a model: every example would be refused for the same reason, or none of them teach when to stop.
    """
    record = MessagesRecord([Message("user", "Hello."), Message("assistant", "Yes.")])
    try:
        tokens = tokenise(tokenizer, record, max_tokens=1 << 30)
    except RecordRefused as error:
        return f"conversations cannot be learned: {error.line()}"
    except Exception as error:  # noqa: BLE001 - whatever a tokenizer raises; its examples are refused one by one
        return f"conversations cannot be tokenised ({line_of(error)})"
    learned = [token for token, mask in zip(tokens.ids, tokens.mask, strict=True) if mask]
    if not end_of_turn(tokenizer, str(tokenizer.decode(learned))):
        return "the chat template ends a turn without a token of its own: conversations do not teach when to stop"
    return ""


def _as_served(message: Message) -> dict[str, Any]:
    """The message as vLLM hands it to the template: thinking under both of its names, no `weight`."""
    served: dict[str, Any] = msgspec.to_builtins(message)
    served.pop("weight", None)
    if message.reasoning_content is not None:
        served["reasoning"] = message.reasoning_content
    return served


class _Rendering:
    """A conversation in the words of the model's chat template."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], tools: list[Any] | None
    ) -> None:
        self._tokenizer = tokenizer
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

    def _render(self, count: int, **options: Any) -> Any:
        """The first `count` messages as text (or, with `tokenize`, what the tokenizer makes of it)."""
        try:
            return self._tokenizer.apply_chat_template(
                self._messages[:count], tools=self._tools, strftime_now=DATE.strftime, **{"tokenize": False, **options}
            )
        except Exception as error:  # a template is a program of the model's author and may raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise RecordRefused(
                f"the chat template refuses these messages ({reason})", "check roles and their order"
            ) from error

    def _marked(self, wanted: list[bool]) -> list[Span]:
        """Spans that the template itself marks with `{% generation %}`. None where it does not, or where its marks
        cannot be told apart by message."""
        if not _GENERATION.search(self._tokenizer.get_chat_template(tools=self._tools)):
            return []
        encoded = self._render(
            len(wanted), tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
            tokenizer_kwargs={"return_offsets_mapping": True},
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
        """What the model is shown when it is to write message `i`."""
        return str(self._render(i, add_generation_prompt=True))

    def turn(self, i: int, text: str) -> Span | None:
        """Span of message `i`, if the whole text holds the turn as it was when the model wrote it.

        Templates that drop the thinking of earlier turns show them otherwise than they were; those are not learned.
        """
        try:
            before = self.before(i)
            through = self._render(i + 1).rstrip()  # without what follows the token that ends the turn
        except RecordRefused:  # a beginning that the template does not accept alone
            return None
        whole = through.startswith(before) and text.startswith(through)
        return (len(before), len(through)) if whole else None

    def _last_turn(self, text: str) -> Span:
        """Span of the last message. Where its rendering leaves out the end of the generation prompt (an opened
        `<think>`), it starts where the two part."""
        before = len(self._messages) - 1
        if not before:
            raise RecordRefused("nothing comes before the answer", "put the question before it")
        start = _shared(self.before(before), text)
        if start < len(self._render(before).rstrip()):
            raise RecordRefused("the chat template rewrites what is before the answer", "report this model's template")
        return (start, len(text.rstrip()))


def _shared(one: str, other: str) -> int:
    """Length of the beginning that both have."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
