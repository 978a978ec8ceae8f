"""From a training record to token ids and the mask of what is learned.

Learned are the turns of the assistant, up to and with the token that ends them; for a completion its tokens and the
end of text; for a text everything. Messages go through the tokenizer's own chat template, in the form in which
vLLM hands them to it (wire/records.py normalises), so that the prompt is the one the served model sees. Marks such as
`<|im_end|>` inside a message's text become special tokens, as they do when vLLM serves the same message.
"""

import re
from datetime import date
from typing import Any

import msgspec
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from apollod.errors import ModelRefused, RecordRefused
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.records import CompletionRecord, Message, MessagesRecord, TextRecord, TypedRecord

Span = tuple[int, int]
"""Characters [start, end) of a rendered conversation."""

DATE = date(2025, 1, 1)
"""Today, for templates that ask (`strftime_now`): the same record has to give the same tokens on every day."""

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


def tokenise(tokenizer: PreTrainedTokenizerBase, record: TypedRecord, max_tokens: int) -> Tokens:
    """Token ids and mask of a record, at most `max_tokens` long; raises RecordRefused with the reason."""
    match record:
        case MessagesRecord():
            ids, mask = _messages(tokenizer, record)
        case CompletionRecord():
            ids, mask = _completion(tokenizer, record)
        case TextRecord():
            ids = _ended(tokenizer, tokenizer(record.text)["input_ids"])
            mask = [True] * len(ids)
    if mask:
        mask[0] = False  # nothing comes before it
    return _cut(Tokens(ids, mask), max_tokens, tokenizer.bos_token_id)


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
    return Tokens(tokens.ids[:head] + tokens.ids[head + cut :], tokens.mask[:head] + tokens.mask[head + cut :], cut)


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


def _ended(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    eos = tokenizer.eos_token_id
    return ids if eos is None or ids[-1:] == [eos] else [*ids, eos]


def _unended(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    """Without the end of text that a few tokenizers append to everything, the empty string included."""
    appended = tokenizer("")["input_ids"][-1:] == [tokenizer.eos_token_id]
    return ids[:-1] if appended else ids


# --- chat ---------------------------------------------------------------------------------------------------------


def _messages(tokenizer: PreTrainedTokenizerBase, record: MessagesRecord) -> tuple[list[int], list[bool]]:
    if not tokenizer.chat_template:
        raise RecordRefused(
            "the model has no chat template", "add chat_template.jinja to the model directory, or use prompt/completion"
        )
    learned = [message.role == "assistant" and message.weight != 0 for message in record.messages]
    if not any(learned):
        raise RecordRefused("no assistant turn to learn", "give one of them weight 1")
    end = len(learned) - learned[::-1].index(True)  # what follows the last learned turn cannot influence it
    messages = [_as_served(message) for message in record.messages[:end]]
    text, spans = _Rendering(tokenizer, messages, record.tools or None).learned(learned[:end])
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    mask = [any(start < b and a < end for a, b in spans) for start, end in encoded["offset_mapping"]]
    return list(encoded["input_ids"]), mask


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

    def learned(self, wanted: list[bool]) -> tuple[str, list[Span]]:
        """The text, and the spans of the wanted turns; the last message is one of them."""
        text = self._render(len(wanted))
        spans = self._marked(wanted)
        if not spans:
            spans = [span for i, want in enumerate(wanted[:-1]) if want and (span := self._turn(i, text))]
            spans.append(self._last_turn(text))
        return text, spans

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

    def _turn(self, i: int, text: str) -> Span | None:
        """Span of message `i`, if the whole text holds the turn as it was when the model wrote it.

        Templates that drop the thinking of earlier turns show them otherwise than they were; those are not learned.
        """
        try:
            before = self._render(i, add_generation_prompt=True)
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
        start = _shared(self._render(before, add_generation_prompt=True), text)
        if start < len(self._render(before).rstrip()):
            raise RecordRefused("the chat template rewrites what is before the answer", "report this model's template")
        return (start, len(text.rstrip()))


def _shared(one: str, other: str) -> int:
    """Length of the beginning that both have."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
