"""Encodes a conversation that ends with one learned answer: token ids and the token mask.

    ids = tokens of the served model's prompt | tokens of the answer as it would write it

The prompt is the messages before the answer, rendered by the chat template with its generation prompt. The answer is
the template's rendering of the last turn, thinking and calls with it, and the token that ends the turn. If not all of
it fits into `max_tokens`, `wire.context_window` chooses what stays; of a long answer one part is learned, behind the
beginning of the answer. `_Answer` decides what fits; `TurnWriter`, below, writes the answer after a given prompt.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from apollod.core.events import Sampled
from apollod.errors import RecordRefused
from apollod.trainer.objectives.chat_template import (
    PLAIN,
    ChatTemplate,
    Habits,
    Served,
    adapted,
    adapted_answer,
    as_served,
    with_thoughts,
)
from apollod.trainer.objectives.tokens import Span, Tokens, decoded, encoded, end_of_turn, pieces, shared_start
from apollod.wire.context_window import WORTH, called_of, shortened, size_of, window
from apollod.wire.records import MessagesRecord
from apollod.wire.thoughts import CLOSED, NO_THOUGHT, OPENED, past_thought

TRIES = 6
SLACK = 8  # tokens cut beyond the excess
NEARLY = 10  # a prompt that leaves a tenth of its room is long enough
MESSAGE_TOKENS = 6  # approximate overhead of a template per message
BEGINNING = 32  # tokens of a long answer that stay before a later part, with the newest ones
TOOLS_SHARE = 2  # tools may take half of a step
MARK = "apollodmark"


def tokenise_answer(tokenizer: PreTrainedTokenizerBase, record: MessagesRecord, max_tokens: int, rules: int) -> Tokens:
    """Ids and mask of a record whose only learned answer is its last message, at most `max_tokens`; raises
    RecordRefused with the reason."""
    return _Answer(tokenizer, record, max_tokens, rules).tokens()


class Turn(NamedTuple):
    """`before`: the prompt; `answer`: the model's text after it; `behind`: white space that a template puts after the
    turn."""

    before: str
    answer: str
    behind: str = ""


class _Prompt(NamedTuple):
    """Context before the answer, the answer's tokens with their offsets in its text (none for sampled tokens), and the
    changes made to fit it."""

    ids: list[int]
    answer: list[int]
    spans: list[Span]
    turn: Turn
    done: Counter[str]


class _Answer:
    def __init__(self, tokenizer: PreTrainedTokenizerBase, record: MessagesRecord, max_tokens: int, rules: int) -> None:
        self._rules = rules
        self._tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer)
        self._max = max_tokens
        *before, answer = record.messages
        if not before:
            raise RecordRefused("nothing comes before the answer", "put the question before it")
        thoughts = with_thoughts if rules >= 4 else Served
        self._before = [thoughts(as_served(message)) for message in before]
        self._answer = thoughts(as_served(answer))
        self._part = answer.part or (0, 1)
        self._learns_thought = answer.reasoning_weight != 0
        self._tools = record.tools or None
        self._sampled = record.sampled[0] if record.sampled else Sampled()
        self._left_tools = 0
        self._sizes: dict[int, int] = {}

    def tokens(self) -> Tokens:
        whole = self._shown(self._before)
        answer = whole.answer
        first, last = _part(whole.turn.answer, whole.spans, len(answer), self._part)
        learned, earlier = answer[first:last], answer[:first]
        if not learned:
            raise RecordRefused("no token to learn", "an answer must not be empty, nor every weight 0")
        if len(learned) >= self._max:
            raise RecordRefused(
                f"the answer alone has {len(learned)} tokens, [trainer] max_tokens is {self._max}",
                "raise it or shorten the line",
            )
        earlier = self._newest(earlier, (self._max - len(learned)) // 2)
        prompt = self._fitted(whole, self._max - len(learned) - len(earlier))
        ids = [*prompt.ids, *earlier, *learned]
        mask = [False] * (len(ids) - len(learned)) + [True] * len(learned)
        cut = max(0, len(ids) - self._max)
        head = 1 if cut and ids[0] == self._tokenizer.bos_token_id else 0
        ids, mask = ids[:head] + ids[head + cut :], mask[:head] + mask[head + cut :]
        if last == len(answer) and not self._sampled.answer and whole.turn.behind:
            behind = encoded(self._tokenizer, whole.turn.behind)[0][: self._max - len(ids)]
            ids, mask = ids + behind, mask + [False] * len(behind)
        return Tokens(ids, mask, cut, changes=dict(sorted((+prompt.done).items())))

    # --- context ------------------------------------------------------------------------------------------------------

    def _shown(self, before: Sequence[Served]) -> _Prompt:
        """These messages before the answer, in the form nearest to the served one that the template renders in full."""
        habits = self._template.habits(self._tools)
        try:
            turn, how = self._turn(before, habits)
        except RecordRefused:
            if habits == PLAIN:
                raise
            turn, how = self._turn(before, PLAIN)
        return self._prompt(turn, before, how)

    def _turn(self, before: Sequence[Served], habits: Habits) -> tuple[Turn, Counter[str]]:
        told, done = adapted(before, habits)
        writer = TurnWriter(self._template, told, self._tools, habits, self._tokenizer, self._rules)
        turn = writer.turn(adapted_answer(self._answer, habits), bool(self._sampled.answer), self._learns_thought)
        if not _holds(turn.answer, self._answer):
            raise RecordRefused("the chat template leaves out what the answer says", "report this model's template")
        if self._answer.get("tool_calls") and not habits.calls:
            done["as_text"] += 1
        return turn, done

    def _prompt(self, turn: Turn, before: Sequence[Served], done: Counter[str]) -> _Prompt:
        """The prompt, with the engine's own tokens if their text is the same, and sampled tokens for the answer."""
        start = len(turn.before)
        ids, offsets = pieces(self._tokenizer, turn.before + turn.answer, [start])
        first = sum(1 for begin, _ in offsets if begin < start)
        prompt, answer, spans = ids[:first], ids[first:], [(a - start, b - start) for a, b in offsets[first:]]
        asked = self._sampled.prompt if len(before) == len(self._before) else ()
        if asked and decoded(self._tokenizer, asked) == turn.before:
            prompt = list(asked)
        if self._sampled.answer:
            answer, spans = list(self._sampled.answer), []
        return _Prompt(prompt, answer, spans, turn, done)

    # --- fitting ------------------------------------------------------------------------------------------------------

    def _fitted(self, whole: _Prompt, room: int) -> _Prompt:
        """Context in at most `room` tokens; the shortest possible one if nothing fits."""
        if len(whole.ids) <= room:
            return whole
        self._fit_tools(room)
        roles = [one["role"] for one in self._before]
        asked = next((n for n in range(len(roles) - 1, -1, -1) if roles[n] == "user"), None)
        low, high, budget, before = 0, room + 1, room, 0
        best: _Prompt | None = None
        for _ in range(TRIES):
            shown, done = self._window(roles, asked, budget)
            found = self._shown(shown)
            found = found._replace(done=found.done + done)
            over = len(found.ids) - room
            if over > 0:
                high = budget
            else:
                low = budget
                best = found if best is None or len(found.ids) > len(best.ids) else best
                if -over <= room // NEARLY:
                    break
            if high - low < 2:
                break
            step = over + SLACK if over > 0 else over
            stuck = over > 0 and len(found.ids) == before  # until a whole group is dropped
            budget, before = budget - (max(step, room // WORTH) if stuck else step), len(found.ids)
            budget = budget if low < budget < high else (low + high) // 2
        return best or found

    def _window(self, roles: list[str], asked: int | None, budget: int) -> tuple[list[Served], Counter[str]]:
        seen = window(roles, asked, self._size, budget)
        told = {n: self._before[n] for n in seen.kept}
        done = Counter[str]()
        for group, most in seen.tight:
            tokens = sum(map(self._size, group)) or 1
            characters = sum(size_of(self._before[n]) for n in group)
            for n, one in zip(group, shortened([told[n] for n in group], characters * most // tokens), strict=True):
                done["shortened"] += one != told[n]
                told[n] = _with_reasoning(one)
        done["left_out"] = len(roles) - len(told)
        done["tools_left_out"] = self._left_tools
        return [told[n] for n in sorted(told)], done

    def _fit_tools(self, room: int) -> None:
        """Reduce tools that exceed their share to the called ones, or to none."""
        if not self._tools or self._count(json.dumps(self._tools)) * TOOLS_SHARE <= room:
            return
        kept = called_of(self._tools, (*self._before, self._answer))
        if self._count(json.dumps(kept)) * TOOLS_SHARE > room:
            kept = []
        self._left_tools = len(self._tools) - len(kept)
        self._tools = kept or None

    def _size(self, n: int) -> int:
        if n not in self._sizes:
            one = self._before[n]
            texts = [one["content"], one.get("reasoning_content") or ""]
            texts += [json.dumps(call["function"], ensure_ascii=False) for call in one.get("tool_calls") or ()]
            self._sizes[n] = self._count("\n".join(texts)) + MESSAGE_TOKENS
        return self._sizes[n]

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _newest(self, earlier: list[int], room: int) -> list[int]:
        """Shorten the earlier parts of a long answer to their first and newest tokens, with a mark between."""
        if len(earlier) <= room:
            return earlier
        mark = encoded(self._tokenizer, "\n[...]\n")[0]
        begin = min(BEGINNING, room // 4)
        newest = room - begin - len(mark)
        return [*earlier[:begin], *mark, *earlier[len(earlier) - newest :]] if newest > 0 else []


def _with_reasoning(message: Served) -> Served:
    """Copy a thought into its second field, if the message has both."""
    return {**message, "reasoning": message["reasoning_content"]} if "reasoning" in message else message


def _holds(text: str, answer: Served) -> bool:
    """True if the rendered text contains the answer's words and calls."""
    names = [call["function"]["name"] for call in answer.get("tool_calls") or ()]
    return "".join(answer["content"].split()) in "".join(text.split()) and all(name in text for name in names)


def _part(text: str, offsets: list[Span], count: int, part: tuple[int, int]) -> tuple[int, int]:
    """Tokens first .. last-1 of the k-th of n parts, split at ends of lines or words near equal shares."""
    k, n = part
    return _border(text, offsets, count, k, n), _border(text, offsets, count, k + 1, n)


def _border(text: str, offsets: list[Span], count: int, k: int, n: int) -> int:
    if k in (0, n):
        return count if k else 0
    middle, reach = count * k // n, count // (4 * n)
    if not offsets:  # sampled tokens have no offsets in the text
        return middle

    def worth(at: int) -> tuple[int, int]:
        start = offsets[at][0]
        behind = text[max(0, start - 2) : start]
        line = behind.endswith(("\n", "\\n"))
        word = behind.endswith((" ", "\t")) or text[start : start + 1].isspace()
        return 2 * line + word, -abs(at - middle)

    return max(range(max(1, middle - reach), min(count - 1, middle + reach) + 1), key=worth, default=middle)


# --- the answer, as the chat template renders the last turn after the served model's prompt ---------------------------


class TurnWriter:
    """Renders an answer to given messages with the template."""

    def __init__(
        self, template: ChatTemplate, before: list[Served], tools: list[Any] | None, habits: Habits,
        tokenizer: PreTrainedTokenizerBase, rules: int,
    ) -> None:  # fmt: skip
        self._template, self._before, self._tools, self._habits = template, before, tools, habits
        self._tokenizer, self._rules = tokenizer, rules
        self._options: dict[str, Any] = {}

    def turn(self, answer: Served, fixed: bool, learns_thought: bool) -> Turn:
        """Render the answer. `fixed`: use the prompt of a request without options, for any answer. Otherwise an answer
        without a thought follows a prompt that disables thinking and leaves no thought open; and one whose thought is
        not learned follows a prompt that enables thinking, and then the thought."""
        thought = (answer.get("reasoning_content") or "").strip()
        apart = not fixed and ((self._rules >= 4 and not thought) or not learns_thought)
        self._options = {"enable_thinking": bool(thought)} if apart else {}
        turn = self._turn(answer, bool(thought), fixed)
        if not apart:
            return turn
        before, written = past_thought(turn.before, turn.answer, thought)
        return Turn(before, written, turn.behind)

    def _turn(self, answer: Served, thinks: bool, fixed: bool) -> Turn:
        prompts = [self._render(self._before, add_generation_prompt=True)]
        calls = answer.get("tool_calls") or ()
        if not fixed:
            full = self._render([*self._before, {**answer, "tool_calls": calls[:1]} if calls else answer])
            if not full.startswith(prompts[0]):  # a template may open or close a thought on request
                prompts.insert(0, self._render(self._before, add_generation_prompt=True, enable_thinking=thinks))
                prompts = [prompt for prompt in prompts if full.startswith(prompt)] or prompts[-1:]
        prompt = prompts[0]
        if len(calls) > 1 and not self._habits.several_calls:
            each = [
                self._written(prompt, {**answer, "content": "" if k else answer["content"], "tool_calls": [call]})
                for k, call in enumerate(calls)
            ]
            return Turn(prompt, self._chained(each, "; " if each[-1].lstrip().startswith("{") else "\n"))
        written = self._written(prompt, answer)
        return Turn(prompt, written.rstrip(), written[len(written.rstrip()) :])

    def _written(self, prompt: str, answer: Served) -> str:
        """The rendered answer after the prompt, up to the token that ends the turn."""
        if answer.get("tool_calls") and answer["content"].strip() and not self._habits.text_and_calls:
            text = {key: value for key, value in answer.items() if key != "tool_calls"}
            calls = self._after(prompt, {**answer, "content": ""})
            special = calls.lstrip().startswith(tuple(self._tokenizer.get_added_vocab()))
            return self._chained([self._after(prompt, text), calls], "" if special else "\n\n")
        return self._after(prompt, answer)

    def _chained(self, texts: list[str], between: str) -> str:
        """Concatenate texts, of which only the last ends the turn."""
        *first, last = map(str.rstrip, texts)
        begun = [text[: len(text) - len(end_of_turn(self._tokenizer, text))].rstrip() for text in first]
        return between.join([*begun, last.lstrip() if between else last])

    def _after(self, prompt: str, answer: Served) -> str:
        full = self._render([*self._before, answer])
        text = self._rest(prompt, full, answer)
        ender = self._missing_end(text)
        return text.rstrip() + ender if ender else text

    def _rest(self, prompt: str, full: str, answer: Served) -> str:
        if full.startswith(prompt):
            return full[len(prompt) :]
        base = self._render(self._before).rstrip()
        shared = shared_start(prompt, full)
        same = not prompt[shared:].strip() or OPENED in prompt[len(base) :]  # but for a thought
        if shared >= len(base) and full.startswith(base) and same:
            return _bridged(prompt, shared, full[shared:], answer)
        return self._rewritten(prompt, full, answer)

    def _rewritten(self, prompt: str, full: str, answer: Served) -> str:
        """The answer's text if the template renders earlier turns differently once there is an answer: it begins where
        another answer would, if the text between is the same."""
        probe = self._render([*self._before, {"role": "assistant", "content": MARK}])
        at, last = probe.find(MARK), self._before[-1]["content"].strip()[-40:]
        if at >= 0 and last and full[:at] == probe[:at] and last in probe[:at] and last in prompt:
            header = probe[probe.rindex(last, 0, at) + len(last) : at]
            ends = prompt.rindex(last) + len(last)
            if prompt[ends:].startswith(header):
                return _bridged(prompt, ends + len(header), full[at:], answer)
        raise RecordRefused("the chat template rewrites what is before the answer", "report this model's template")

    def _missing_end(self, text: str) -> str:
        """The end-of-text token, if the template omits it only behind the last turn; else ""."""
        ender = self._tokenizer.eos_token
        if not ender or end_of_turn(self._tokenizer, text):
            return ""
        others = {"role": "assistant", "content": MARK}, {"role": "user", "content": "a"}
        try:
            more = self._render([*self._before, *others])
        except RecordRefused:
            return ""
        return str(ender) if more.partition(MARK)[2].lstrip().startswith(str(ender)) else ""

    def _render(self, messages: list[Served], **options: Any) -> str:
        return self._template.render(messages, self._tools, **{**self._options, **options})


def _bridged(prompt: str, shared: int, rest: str, answer: Served) -> str:
    """Join the rest of a rendered turn to a prompt of which it repeats only the first `shared` characters. A thought
    that the prompt opens, and the turn omits, is written out and closed."""
    opened = prompt.rfind(OPENED) > prompt.rfind(CLOSED)
    if opened and prompt.rfind(OPENED) + len(OPENED) > shared and CLOSED not in rest:
        return (answer.get("reasoning_content") or "").strip("\n") + NO_THOUGHT + rest
    return rest
