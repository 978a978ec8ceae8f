"""Encodes a training record as token ids and the mask of learned tokens.

Learned are the turns of the assistant, up to and with the token that ends them, without empty thoughts; of a completion
its tokens and the end of text; of a text everything; of token ids those of the answer, as they are. Messages go through
the tokenizer's own chat template, in the form that vLLM passes to it (wire/records.py normalises), so that the prompt
equals that of the served model, token by token: where a token would cross the end of the prompt, text is tokenised in
two pieces. Marks such as `<|im_end|>` inside a message's text become special tokens, as they do when vLLM serves the
same message.
"""

import msgspec
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from apollod.errors import ModelRefused, RecordRefused
from apollod.explain import line_of
from apollod.trainer.objectives.one_answer import tokenise_answer
from apollod.trainer.objectives.several_answers import tokenise_conversation
from apollod.trainer.objectives.tokens import Tokens, end_of_turn
from apollod.wire.comparisons import GroupRecord, LearnedRecord, PairRecord, RatedRecord
from apollod.wire.records import CompletionRecord, Message, MessagesRecord, TextRecord, TokensRecord
from apollod.wire.thoughts import past_thought

RULES = 4
"""version of the rules for ids and masks. 3, in older journals: an empty thought is learned with an answer that has
none, and a tagged thought in a text as text. 2: a conversation is cut at the left, token by token, and one that its
template refuses is not learned. 1: besides, tokens of a conversation may cross the end of the prompt, and if a template
marks generated text, the token that ends the turn is learned only if it is marked, too"""


def load_tokenizer(model_dir: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer; raises ModelRefused without one that supports character offsets."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelRefused(
            f"{model_dir} has no tokenizer that loads ({error})", "add tokenizer.json to the model directory"
        ) from error
    if not tokenizer.is_fast:
        raise ModelRefused(f"{model_dir} has only a slow tokenizer", "add tokenizer.json to the model directory")
    return tokenizer


def tokenise(tokenizer: PreTrainedTokenizerBase, record: LearnedRecord, max_tokens: int, rules: int = RULES) -> Tokens:
    """Token ids and mask of a record, at most `max_tokens` long; raises RecordRefused with the reason."""
    left_out = 0
    match record:
        case MessagesRecord():
            learned = [n for n, one in enumerate(record.messages) if one.role == "assistant" and one.weight != 0]
            if not learned:
                raise RecordRefused("no assistant turn to learn", "give one of them weight 1")
            if len(learned) == 1 and rules >= 3:
                upto = msgspec.structs.replace(record, messages=record.messages[: learned[0] + 1])
                return tokenise_answer(tokenizer, upto, max_tokens, rules)
            if any(one.part for one in record.messages):
                raise RecordRefused("a part of one answer among others", "give each answer a line of its own")
            if any(one.reasoning_weight == 0 for one in record.messages):
                raise RecordRefused("a thought that is context among others", "give each answer a line of its own")
            ids, mask, left_out = tokenise_conversation(tokenizer, record, rules)
        case CompletionRecord():
            asked = record.prompt
            if rules >= 4:
                prompt, completion = past_thought(record.prompt, record.completion)
                record = msgspec.structs.replace(record, prompt=prompt, completion=completion)
            closing = record.prompt[len(asked) :]
            sampled = bool(record.sampled)
            ids, mask = _after_sampled(tokenizer, record, closing) if sampled else _completion(tokenizer, record)
        case TextRecord():
            ids = _ended(tokenizer, tokenizer(record.text)["input_ids"])
            mask = [True] * len(ids)
        case TokensRecord():
            ids = [*record.prompt_token_ids, *record.token_ids]
            mask = [place >= len(record.prompt_token_ids) for place in range(len(ids))]
        case GroupRecord() | PairRecord() | RatedRecord():
            raise RecordRefused("it compares answers", "learn it by grpo, dpo or kto")
    if mask:
        mask[0] = False  # nothing precedes it
    return _cut(Tokens(ids, mask, left_out=left_out), max_tokens, tokenizer.bos_token_id)


def _cut(tokens: Tokens, max_tokens: int, bos: int | None) -> Tokens:
    """Drop excess tokens from the left of the prompt; a beginning-of-text token stays."""
    if not tokens.targets:
        raise RecordRefused("no token to learn", "an answer must not be empty, nor every weight 0")
    first = tokens.mask.index(True)
    cut = max(0, len(tokens.ids) - max_tokens)
    if cut and cut >= first:  # at least one token has to stay before the first learned one
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
    """The prompt as the completions API tokenises it, then the completion, then the end of text."""
    prompt = _unended(tokenizer, tokenizer(record.prompt)["input_ids"])
    both = _unended(tokenizer, tokenizer(record.prompt + record.completion)["input_ids"])
    if both[: len(prompt)] != prompt:  # a token would straddle the boundary, where the served model starts a new one
        both = prompt + tokenizer(record.completion, add_special_tokens=False)["input_ids"]
    ids = _ended(tokenizer, both)
    answer = len(both) > len(prompt)  # the end alone is not worth learning
    return ids, [answer and i >= len(prompt) for i in range(len(ids))]


def _after_sampled(
    tokenizer: PreTrainedTokenizerBase, record: CompletionRecord, closing: str
) -> tuple[list[int], list[bool]]:
    """The engine's prompt, token by token, then the sampled answer, or the completion's text. `closing`: ends the
    thought that the prompt has opened, before a completion."""
    (sampled,) = record.sampled
    prompt, answer = list(sampled.prompt), list(sampled.answer)
    if not answer:
        prompt += tokenizer(closing, add_special_tokens=False)["input_ids"] if closing else []
        answer = tokenizer(record.completion, add_special_tokens=False)["input_ids"] if record.completion else []
        end = [sampled.final] if sampled.final >= 0 else []
        answer = [*answer, *end] if end or not answer else _ended(tokenizer, answer)
    return prompt + answer, [i >= len(prompt) for i in range(len(prompt) + len(answer))]


def _ended(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    eos = tokenizer.eos_token_id
    return ids if eos is None or ids[-1:] == [eos] else [*ids, eos]


def _unended(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    """The ids without the end of text that a few tokenizers append to everything, the empty string included."""
    appended = tokenizer("")["input_ids"][-1:] == [tokenizer.eos_token_id]
    return ids[:-1] if appended else ids


def template_problem(tokenizer: PreTrainedTokenizerBase) -> str:
    """A problem of the template that affects all conversations, whatever their content; empty if there is none.

    Reported once per model: otherwise every example would be refused for the same reason, or none would teach when to
    stop.
    """
    record = MessagesRecord([Message("user", "Hello."), Message("assistant", "Yes.")])
    try:
        tokens = tokenise(tokenizer, record, max_tokens=1 << 30)
    except RecordRefused as error:
        return f"conversations cannot be learned: {error.line()}"
    except Exception as error:  # noqa: BLE001 - whatever a tokenizer raises; its examples are refused one by one
        return f"conversations cannot be tokenised ({line_of(error)})"
    if not end_of_turn(tokenizer, str(tokenizer.decode(tokens.learned))):
        return "the chat template ends a turn without a token of its own: conversations do not teach when to stop"
    return ""
