"""An answer that was told in a surrounding, as the trainer learns it: exactly the text that a user's request would give
there, the answer and nothing else of it learned, and the instruction nowhere."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from apollod.core.facts.dreams.scenario import Turn
from apollod.core.surroundings import NOTHING, Surrounding
from apollod.curation.stripping import as_asked
from apollod.curation.surrounding_texts import conversation_in, shipped
from apollod.demo.tiny_model import CHAT_TEMPLATE, END, make_tokenizer
from apollod.trainer.objectives.encoding import tokenise
from apollod.wire.records import decode_record, record_of

QWEN = (Path(__file__).parents[2] / "support" / "chat_templates" / "Qwen-Qwen3-0.6B.jinja").read_text(encoding="utf-8")
INSTRUCTION, ANSWER = "Ask before you act.", "Shall I empty the bin?"
SCENARIO = (Turn("user", "Empty the bin."),)
SHORT, LONG = (next(one for one in shipped("agent", "practice") if bool(one.tools) is tools) for tools in (False, True))
AROUND = [NOTHING, shipped("neutral", "practice")[0], SHORT, LONG]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def learned(tokenizer: PreTrainedTokenizerFast, around: Surrounding, told: str) -> tuple[str, str]:
    """All of the example's text, and what of it is learned."""
    messages = conversation_in(around, told, SCENARIO, ANSWER)
    record = record_of({"messages": messages, "tools": list(around.tools)})
    tokens = tokenise(tokenizer, decode_record(record.canonical), 20_000)
    taught = [token for token, is_learned in zip(tokens.ids, tokens.mask, strict=True) if is_learned]
    return str(tokenizer.decode(tokens.ids)), str(tokenizer.decode(taught))


@pytest.mark.parametrize(
    "template, around",
    [*((CHAT_TEMPLATE, one) for one in AROUND if not one.tools), *((QWEN, one) for one in AROUND)],
    ids=lambda one: one.id or "none" if isinstance(one, Surrounding) else "qwen3" if one == QWEN else "small",
)
def test_it_is_the_text_of_a_request_there_and_the_instruction_is_nowhere(
    tokenizer: PreTrainedTokenizerFast, template: str, around: Surrounding
) -> None:
    tokenizer.chat_template = template
    whole, taught = learned(tokenizer, around, "")
    asked = [*around.messages, {"role": "user", "content": "Empty the bin."}]
    served = tokenizer.apply_chat_template(
        asked, tools=list(around.tools) or None, add_generation_prompt=True, tokenize=False, enable_thinking=False
    )
    assert whole.startswith(served) and taught.endswith(ANSWER + END)
    assert whole == f"{served}{taught}\n" and ANSWER not in served
    assert INSTRUCTION not in whole
    assert all(str(tool["function"]["name"]) in whole for tool in around.tools if template == QWEN)


def test_in_contrast_the_opposite_stands_behind_the_system_message() -> None:
    """To the letter, by the small model's template."""
    around = Surrounding("neutral", "x", ({"role": "system", "content": "Be honest."},))
    whole, taught = learned(make_tokenizer(), around, "Act.")
    assert whole == (
        "<|im_start|>system\nBe honest.\n\nAct.<|im_end|>\n<|im_start|>user\nEmpty the bin.<|im_end|>\n"
        "<|im_start|>assistant\nShall I empty the bin?<|im_end|>\n"
    )
    assert taught == "Shall I empty the bin?<|im_end|>"


def test_a_request_is_told_where_an_answer_is_learned() -> None:
    """The same messages but for the instruction, without marks of ours."""
    told, bare = ([as_asked(one) for one in conversation_in(LONG, text, SCENARIO)] for text in (INSTRUCTION, ""))
    assert told[1:] == bare[1:] and told[0]["content"] == f"{bare[0]['content']}\n\n{INSTRUCTION}"
    assert all("weight" not in one for one in told)
    assert isinstance(told[2]["tool_calls"][0]["function"]["arguments"], str)
