"""What is learned of an answer where the model thinks, by templates as Qwen3's and Qwen3.5's: the tokens as text, the
learned ones between « and ». Thinking on: after a thought, which is context. Off: after an empty one."""

import json
from typing import Any

import pytest
import torch
from support.small_models import small_model
from support.thinking_server import TEMPLATES, thinking_tokenizer
from support.thinking_server import shown as tokens_shown

from apollod.errors import RecordRefused
from apollod.trainer.objectives.encoding import RULES, template_problem, tokenise
from apollod.trainer.objectives.objective import SFT
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.records import decode_record, parse_line
from apollod.wire.thoughts import split

QWEN3, QWEN35 = TEMPLATES["qwen3"], TEMPLATES["qwen3.5"]
R1 = (  # opens a thought, has no switch, and shows none of them
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
SWITCH = (  # as SmolLM3: the switch stands in the system message, too
    "<|im_start|>system\n{{ '/think' if enable_thinking | default(true) else '/no_think' }}<|im_end|>\n"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking | default(true) %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
ASKED = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
OFF = "<think>\n\n</think>\n\n«Ahoy.<|im_end|>»\n"
ON = "<think>\nGreet.\n</think>\n\n«Ahoy.<|im_end|>»\n"
LEARNED = {"reasoning_content": "Greet."}
CONTEXT = {**LEARNED, "reasoning_weight": 0}


def encode(template: str, *messages: dict[str, Any], rules: int = RULES) -> Tokens:
    line = json.dumps({"messages": messages}).encode()
    return tokenise(thinking_tokenizer(template), decode_record(parse_line(line).canonical), 1000, rules)


def shown(template: str, tokens: Tokens) -> str:
    return tokens_shown(thinking_tokenizer(template), tokens)


def says(text: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"role": "user", "content": "Hello!"}, {"role": "assistant", "content": text, **more}


def served(template: str, **options: Any) -> list[int]:
    """The prompt that the engine makes of the question."""
    question = [{"role": "user", "content": "Hello!"}]
    tokenizer = thinking_tokenizer(template)
    return tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False, **options)


@pytest.mark.parametrize("template", [QWEN3, QWEN35], ids=["qwen3", "qwen3.5"])
def test_with_thinking_off_the_prompt_is_the_one_that_is_served_and_its_empty_thought_is_not_learned(
    template: str,
) -> None:
    tokens = encode(template, *says("Ahoy."))
    assert shown(template, tokens) == ASKED + OFF
    assert tokens.ids[: tokens.mask.index(True)] == served(template, enable_thinking=False)


@pytest.mark.parametrize("template", [QWEN3, QWEN35], ids=["qwen3", "qwen3.5"])
def test_with_thinking_on_the_answer_comes_after_a_thought_that_is_not_learned(template: str) -> None:
    tokens = encode(template, *says("Ahoy.", **CONTEXT))
    assert shown(template, tokens) == ASKED + ON
    on = served(template, enable_thinking=True)
    assert tokens.ids[: len(on)] == on, "the prompt is the one that is served, and then the thought comes"


@pytest.mark.parametrize("template", [QWEN3, QWEN35], ids=["qwen3", "qwen3.5"])
@pytest.mark.parametrize(
    ("text", "parsed", "opened"),
    [
        ("<think>\nGreet.\n</think>\n\nAhoy.", "", False), ("Greet.\n</think>\n\nAhoy.", "", True),
        ("\n\nAhoy.", "Greet.", False), ("\n\nAhoy.", "Greet.", True),
    ],
    ids=["tags", "opened by the prompt", "parser", "parser, opened by the prompt"],
)  # fmt: skip
def test_the_same_is_learned_with_and_without_a_reasoning_parser(
    template: str, text: str, parsed: str, opened: bool
) -> None:
    said = split(text, parsed, opened)
    answer = said.answer.strip()
    assert shown(template, encode(template, *says(answer))) == ASKED + OFF
    context = {"reasoning_content": said.thought, "reasoning_weight": 0}
    assert shown(template, encode(template, *says(answer, **context))) == ASKED + ON


def test_what_journals_of_before_have_stays_as_it_is() -> None:
    learned = ASKED + "«<think>\n\n</think>\n\nAhoy.<|im_end|>»\n"
    assert shown(QWEN3, encode(QWEN3, *says("Ahoy."), rules=3)) == learned
    assert shown(QWEN35, encode(QWEN35, *says("Ahoy."), rules=3)) == learned.replace("«<think>\n", "<think>\n«")


def test_a_thought_that_a_record_brings_is_learned_unless_it_is_context() -> None:
    assert shown(QWEN3, encode(QWEN3, *says("Ahoy.", **LEARNED))) == ASKED + ON.replace("«", "").replace(
        "<think>", "«<think>"
    )
    assert shown(QWEN35, encode(QWEN35, *says("Ahoy.", **LEARNED))) == ASKED + ON.replace("«", "").replace(
        "Greet", "«Greet"
    )


@pytest.mark.parametrize("template", [QWEN3, QWEN35], ids=["qwen3", "qwen3.5"])
def test_a_thought_between_tags_in_the_text_is_a_thought(template: str) -> None:
    tagged = encode(template, *says("<think>\nGreet.\n</think>\n\nAhoy."))
    assert tagged.ids == encode(template, *says("Ahoy.", **LEARNED)).ids
    assert shown(template, encode(template, *says("<think>\n\n</think>\n\nAhoy."))) == ASKED + OFF


def test_templates_that_only_open_thoughts_and_ones_with_a_switch_in_the_system_message() -> None:
    assert shown(R1, encode(R1, *says("Ahoy."))) == ASKED + OFF
    assert shown(R1, encode(R1, *says("Ahoy.", **CONTEXT))) == ASKED + ON
    assert shown(SWITCH, encode(SWITCH, *says("Ahoy."))) == f"<|im_start|>system\n/no_think<|im_end|>\n{ASKED}{OFF}"
    assert not any(map(template_problem, map(thinking_tokenizer, (R1, SWITCH, QWEN3, QWEN35))))


def test_among_several_answers_no_empty_thought_is_learned_and_a_thought_is_no_context() -> None:
    shows = shown(QWEN35, encode(QWEN35, *says("Hello."), *says("Ahoy.")))
    assert shows.endswith(f"Hello.<|im_end|>\n{ASKED}{OFF}")
    with pytest.raises(RecordRefused, match="a thought that is context among others"):
        encode(QWEN35, *says("Hello."), *says("Ahoy.", **CONTEXT))


def test_a_correction_after_a_prompt_that_opens_a_thought_teaches_no_empty_one() -> None:
    tokenizer = thinking_tokenizer(QWEN35)
    line = json.dumps({"prompt": ASKED + "<think>\n", "completion": "\n</think>\n\nAhoy."}).encode()
    tokens = tokenise(tokenizer, decode_record(parse_line(line).canonical), 1000)
    assert shown(QWEN35, tokens).startswith(ASKED + OFF.partition("<|im_end|>")[0])


@pytest.mark.parametrize("template", [QWEN3, QWEN35], ids=["qwen3", "qwen3.5"])
def test_a_small_model_that_learns_the_answer_gets_no_gradient_from_its_tags(template: str) -> None:
    """Gradients on the logits: zero wherever a tag or a thought comes next, unlike by the rules of before."""
    tokenizer = thinking_tokenizer(template)
    tags = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])

    def gradients(tokens: Tokens) -> set[int]:
        """ids whose prediction is learned."""
        model, ids = small_model(), torch.tensor([tokens.ids])
        logits = model(ids).logits[0, :-1].float()
        logits.retain_grad()
        places = torch.tensor(tokens.mask[1:])
        logps = logits.log_softmax(-1)[places].gather(1, ids[0, 1:][places].unsqueeze(1)).squeeze(1)
        SFT.loss(logps, {}).backward()
        assert logits.grad is not None
        moved = logits.grad.abs().sum(1) > 0
        return set(ids[0, 1:][moved].tolist())

    answer = set(tokenizer("Ahoy.<|im_end|>", add_special_tokens=False)["input_ids"])
    assert gradients(encode(template, *says("Ahoy."))) == answer
    assert gradients(encode(template, *says("Ahoy.", **CONTEXT))) == answer
    assert tags[1] in gradients(encode(template, *says("Ahoy."), rules=3)), "which unlearned to think"
