"""One answer at the end of a conversation, through templates of real models and through ones that refuse or leave out:
the tokens that are learned are those that the model would write after the prompt that it would see."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from apollod.demo.tiny_model import make_tokenizer
from apollod.errors import RecordRefused
from apollod.trainer.objectives.chat_template import GOES_ON, OPENING, ChatTemplate, as_served
from apollod.trainer.objectives.encoding import tokenise
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.records import MessagesRecord, decode_record, parse_line

HERE = Path(__file__).parents[2] / "support" / "chat_templates"
STRICT = (  # as Gemma 2: no instructions, turns alternate, calls and results unknown; white space of turns is dropped
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
SINGLE = (  # as Llama 3.1: one call at a time, without the text before it, results as JSON, and the date
    "{{ strftime_now('%d %b %Y') }}{% for m in messages %}"
    "<|head|>{{ 'ipython' if m.role == 'tool' else m.role }}<|/head|>"
    "{% if 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}{{ raise_exception('single tool-calls') }}{% endif %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% elif m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content | trim }}{% endif %}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>{% endif %}"
)
LAZY = (  # as vLLM's template_chatml: the last turn has no end, unless something follows
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if (loop.last and add_generation_prompt) or not loop.last %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN3, QWEN35, NEMO, SMALL = (
    (HERE / f"{name}.jinja").read_text(encoding="utf-8")
    for name in (
        "Qwen-Qwen3-0.6B", "Qwen3.5-4B", "mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506",
    )
)  # fmt: skip
ALL = {
    "strict": STRICT,
    "single": SINGLE,
    "lazy": LAZY,
    "qwen3": QWEN3,
    "qwen3.5": QWEN35,
    "nemo": NEMO,
    "small": SMALL,
}
MARKS = (
    "<start_of_turn>", "<end_of_turn>", "<|head|>", "<|/head|>", "<|eot|>", "[INST]", "[/INST]", "[TOOL_CALLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<|im_start|>", "<|im_end|>", "</s>",
)  # fmt: skip

USER: dict[str, Any] = {"role": "user", "content": "Fix the bug in the ferry list."}
SYSTEM = {"role": "system", "content": "Be terse."}


def call(*names: str, text: str = "", **more: Any) -> dict[str, Any]:
    calls = [{"id": f"toolu_{n}", "function": {"name": n, "arguments": {"of": f"<{n}>"}}} for n in names]
    return {"role": "assistant", "content": text, "tool_calls": calls, **more}


def result(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": f"toolu_{name}"}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


RUN = (
    SYSTEM, USER, call("look", text="I look."), result("look", "ferry.py"),
    call("read", "list"), result("read", "def go"), result("list", "a b"), USER,
)  # fmt: skip


def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    tokenizer.chat_template = template
    if "[INST]" in template:
        tokenizer.eos_token = "</s>"
    return tokenizer


def record(*messages: dict[str, Any], **more: Any) -> MessagesRecord:
    context = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in messages[:-1]]
    line = json.dumps({"messages": [*context, messages[-1]], **more})
    made = decode_record(parse_line(line.encode()).canonical)
    assert isinstance(made, MessagesRecord)
    return made


def both(template: str, *messages: dict[str, Any], max_tokens: int = 4000, **more: Any) -> tuple[str, str, Tokens]:
    """The prompt, what is learned after it, and the tokens."""
    tokenizer = tokenizer_of(template)
    tokens = tokenise(tokenizer, record(*messages, **more), max_tokens)
    first, count = tokens.mask.index(True), tokens.targets
    assert tokens.mask[first : first + count] == [True] * count and len(tokens.ids) <= max_tokens
    shown = [tokenizer.decode(ids) for ids in (tokens.ids[:first], tokens.ids[first : first + count])]
    return shown[0], shown[1], tokens


@pytest.mark.parametrize("name", ALL)
def test_the_answer_to_a_run_of_an_agent_is_learned_whole_after_all_that_was_said(name: str) -> None:
    prompt, learned, tokens = both(ALL[name], *RUN, says("Done, see ferry.py."))
    ends = {"strict": "<end_of_turn>", "single": "<|eot|>", "nemo": "</s>", "small": "</s>"}
    assert learned.endswith("Done, see ferry.py." + ends.get(name, "<|im_end|>"))
    assert all(text in prompt for text in ("Be terse.", USER["content"], "ferry.py", "def go", "a b", "read"))
    assert "Done" not in prompt and tokens.cut == 0


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5"])
def test_the_prompt_is_that_of_a_request_token_by_token(name: str) -> None:
    tokenizer = tokenizer_of(ALL[name])
    made = record(*RUN, says("Done.", reasoning_content="Hm."))
    tokens = tokenise(tokenizer, made, 4000)
    served = ChatTemplate(tokenizer).render([as_served(one) for one in made.messages[:-1]], add_generation_prompt=True)
    assert tokens.ids[: tokens.mask.index(True)] == tokenizer(served, add_special_tokens=False)["input_ids"]
    assert not tokens.changes


def test_thinking_and_calls_are_learned_as_the_template_writes_them() -> None:
    answer = call("edit", "run", text="I edit.", reasoning_content="Hm.")
    _, learned, _ = both(QWEN3, SYSTEM, USER, answer)
    assert learned == (
        "<think>\nHm.\n</think>\n\nI edit.\n"
        '<tool_call>\n{"name": "edit", "arguments": {"of": "<edit>"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "run", "arguments": {"of": "<run>"}}\n</tool_call><|im_end|>'
    )
    prompt, learned, _ = both(QWEN35, SYSTEM, USER, answer)
    assert prompt.endswith("<think>\n") and learned.startswith(
        "Hm.\n</think>\n\nI edit.\n\n<tool_call>\n<function=edit>"
    )
    prompt, learned, _ = both(QWEN35, SYSTEM, USER, says("No thought."))
    assert prompt.endswith("<think>\n\n</think>\n\n") and learned == "No thought.<|im_end|>"


def test_what_a_template_leaves_out_of_an_answer_is_learned_all_the_same() -> None:
    answer = call("edit", "run", text="I edit.")
    prompt, learned, _ = both(NEMO, SYSTEM, USER, call("edit", text="I edit."))
    assert learned == 'I edit.[TOOL_CALLS][{"name": "edit", "arguments": {"of": "<edit>"}, "id": "tooluedit"}]</s>'
    assert prompt.endswith(f"{USER['content']}[/INST]") and "Be terse." in prompt, "as the last turn of the user has it"
    _, learned, _ = both(SINGLE, SYSTEM, USER, answer)
    assert learned == (
        'I edit.\n\n{"name": "edit", "parameters": {"of": "<edit>"}}; '
        '{"name": "run", "parameters": {"of": "<run>"}}<|eot|>'
    )
    _, learned, tokens = both(STRICT, SYSTEM, USER, answer)
    assert learned.startswith('I edit.\n<tool_call>\n{"name":"edit","arguments":{"of":"<edit>"}}\n</tool_call>')
    assert learned.endswith("</tool_call><end_of_turn>") and tokens.changes == {"as_text": 1, "folded": 1}


def test_several_calls_are_told_one_after_the_other_with_their_results() -> None:
    prompt, _, tokens = both(SINGLE, USER, call("a", "b"), result("b", "of b"), result("a", "of a"), says("Done."))
    places = [prompt.index(text) for text in ('"name": "a"', "of a", '"name": "b"', "of b")]
    assert places == sorted(places) and tokens.changes == {"split": 1}
    assert prompt.startswith("01 Jan 2025"), "the date of every day"


@pytest.mark.parametrize("name", ALL)
def test_a_conversation_that_begins_without_the_user_gets_a_turn_of_the_user(name: str) -> None:
    prompt, learned, tokens = both(ALL[name], call("look"), result("look", "ferry.py"), says("Done."))
    assert OPENING in prompt and "Done." in learned and tokens.changes["opened"] == 1
    assert prompt.index(OPENING) < prompt.index("ferry.py")


def test_turns_that_have_to_alternate_are_joined_or_parted() -> None:
    prompt, _, tokens = both(STRICT, USER, USER, says("One."), says("Two."), says("Three."))
    assert prompt.count("<start_of_turn>") == 4 and "One.\n\nTwo." in prompt and GOES_ON in prompt
    assert tokens.changes == {"asked_to_go_on": 1, "joined": 2}
    prompt, _, tokens = both(NEMO, USER, call("look"), result("look", "x"), USER, says("Done."))
    assert prompt.count("[INST]") == 2 and tokens.changes == {"asked_to_go_on": 1}


def test_an_answer_that_speaks_of_thoughts_loses_nothing() -> None:
    _, learned, _ = both(QWEN35, USER, says("Close it with </think> then."))
    assert learned.endswith("Close it with </think> then.<|im_end|>")


def test_a_prompt_that_never_ends_the_turn_is_ended_by_the_end_of_text() -> None:
    _, learned, _ = both(LAZY, USER, says("Done."))
    assert learned == "Done.<|im_end|>"


def test_a_tokenizer_whose_pad_is_its_end_learns_the_end() -> None:
    tokenizer = tokenizer_of(LAZY)
    tokenizer.pad_token = tokenizer.eos_token
    tokens = tokenise(tokenizer, record(USER, says("Done.")), 1000)
    last = [id_ for id_, learned in zip(tokens.ids, tokens.mask, strict=True) if learned][-1]
    assert last == tokenizer.eos_token_id == tokenizer.pad_token_id


LONG = (
    SYSTEM, USER,
    *(one for n in range(20) for one in (call(f"look{n}"), result(f"look{n}", f"file {n} " + "word " * 40))),
)  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_what_does_not_fit_is_left_out_in_the_middle_and_never_the_users_turn(name: str) -> None:
    prompt, learned, tokens = both(ALL[name], *LONG, says("Done."), max_tokens=500)
    assert USER["content"] in prompt and "file 19" in prompt and "file 3 " not in prompt
    assert "Be terse." in prompt or name == "nemo", "which shows instructions only where the user spoke last"
    assert "Done." in learned and tokens.changes["left_out"] > 20 and tokens.cut == 0
    assert len(tokens.ids) > 300, "as much as fits"


def test_whatever_the_bound_is_no_prompt_is_cut_within_a_turn() -> None:
    """Also where a whole group of messages has to go, and a little less room changes nothing."""
    run = [one for n in range(20) for one in (call(f"look{n}"), result(f"look{n}", "word " * 60))]
    tokenizer, made = tokenizer_of(QWEN3), record(SYSTEM, USER, *run, says("Done."))
    for most in (600, 870, 1140, 1410, 1680):
        tokens = tokenise(tokenizer, made, most)
        assert tokens.cut == 0 and 0.6 * most < len(tokens.ids) <= most


@pytest.mark.parametrize("name", ALL)
def test_one_result_longer_than_a_step_is_shortened_with_a_mark(name: str) -> None:
    long = "begin " + "word " * 3000 + "end"
    prompt, learned, tokens = both(ALL[name], USER, call("look"), result("look", long), says("Done."), max_tokens=2500)
    assert "begin" in prompt and "end" in prompt and "characters left out ...]" in prompt and USER["content"] in prompt
    assert "Done." in learned and (tokens.changes["shortened"], tokens.cut) == (1, 0)


def test_tools_that_would_take_the_whole_step_are_those_that_are_called() -> None:
    tools = [{"type": "function", "function": {"name": name, "description": "word " * 300}} for name in ("look", "run")]
    most = int(2.2 * len(make_tokenizer()(json.dumps(tools[0]))["input_ids"]))
    run = (*LONG[:2], call("look"), result("look", "x" * 3000), says("Done."))
    prompt, _, tokens = both(QWEN3, *run, tools=tools, max_tokens=most)
    assert '"name": "look"' in prompt and '"name": "run"' not in prompt and tokens.changes["tools_left_out"] == 1


@pytest.mark.parametrize("name", ["qwen3", "nemo", "strict"])
def test_all_parts_of_a_long_answer_are_the_answer_and_each_has_its_beginning(name: str) -> None:
    text = "\n".join(f"Line {n} of the ferry list." for n in range(120))
    whole = both(ALL[name], *LONG, says(text))[1]
    parts = [both(ALL[name], *LONG, says(text, part=[k, 6]), max_tokens=700) for k in range(6)]
    assert "".join(learned for _, learned, _ in parts) == whole
    for prompt, learned, _ in parts:
        assert USER["content"] in prompt and learned.startswith(("Line", "\nLine", "<think>"))
    assert all("Line 0 " in prompt for prompt, _, _ in parts[1:])


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('only tools here') }}", "only tools here"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "leaves out"),
        (STRICT.replace("'model' if", "messages | length if"), "rewrites what is before"),
    ],
)
def test_a_template_for_which_there_is_no_way_is_named(template: str, reason: str) -> None:
    with pytest.raises(RecordRefused, match=reason):
        both(template, USER, says("Done."))
