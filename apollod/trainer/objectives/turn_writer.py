"""Writes an answer as its chat template renders the last turn, after the served model's prompt."""

from __future__ import annotations

from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from apollod.errors import RecordRefused
from apollod.trainer.objectives.chat_template import ChatTemplate, Habits, Served
from apollod.trainer.objectives.token_spans import end_of_turn
from apollod.wire.thoughts import CLOSED, NO_THOUGHT, OPENED, past_thought

MARK = "apollodmark"


class Turn(NamedTuple):
    """`before`: the prompt; `answer`: the model's text after it; `behind`: white space that a template puts after the
    turn."""

    before: str
    answer: str
    behind: str = ""


class TurnWriter:
    """Renders an answer to given messages with the template."""

    def __init__(
        self, template: ChatTemplate, before: list[Served], tools: list[Any] | None, habits: Habits,
        tokenizer: PreTrainedTokenizerBase, rules: int,
    ) -> None:  # fmt: skip
        self._template = template
        self._rules = rules
        self._options: dict[str, Any] = {}
        self._before = before
        self._tools = tools
        self._habits = habits
        self._tokenizer = tokenizer

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
        shared = _shared(prompt, full)
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


def _shared(one: str, other: str) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _bridged(prompt: str, shared: int, rest: str, answer: Served) -> str:
    """Join the rest of a rendered turn to a prompt of which it repeats only the first `shared` characters. A thought
    that the prompt opens, and the turn omits, is written out and closed."""
    opened = prompt.rfind(OPENED) > prompt.rfind(CLOSED)
    if opened and prompt.rfind(OPENED) + len(OPENED) > shared and CLOSED not in rest:
        return (answer.get("reasoning_content") or "").strip("\n") + NO_THOUGHT + rest
    return rest
