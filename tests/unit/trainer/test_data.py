"""Masks, shown as text: what is learned stands between « and »."""

import json
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from apollod.core.events import Sampled
from apollod.demo import tiny_model
from apollod.demo.tiny_model import make_tokenizer
from apollod.errors import RecordRefused
from apollod.trainer.objectives.encoding import RULES, template_problem, tokenise
from apollod.trainer.objectives.objective import SFT
from apollod.trainer.objectives.table import encoded
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.records import TypedRecord, decode_record, parse_line

MAX = 1000
USER, ANSWER, END = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>"

TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}:{{ call.function.arguments.town }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = (  # as Qwen3.5: the thinking of turns before the last question is dropped
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>\n{{ m.reasoning_content or '' "
    "}}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
OPENED = (  # as DeepSeek-R1: the generation prompt opens a thought that no rendering of a turn shows
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
MARKED = (  # marks the words only
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% "
    "endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALTERNATING = (
    "{% if messages[0].role != 'user' %}{{ raise_exception('start with user') }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PARTED = (  # without a token that ends a turn
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
COUNTING = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ messages | length }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)
"""not prefix-preserving: every turn depends on how many follow"""
QWEN = Path(
    find_spec("vllm").submodule_search_locations[0], "transformers_utils/chat_templates/template_minicpmv45.jinja"
)
"""of a model whose template is Qwen3's: thinking is shown in the turns after the last question only, and opened by the
generation prompt"""

base = make_tokenizer()


def record(**fields: object) -> TypedRecord:
    return decode_record(parse_line(json.dumps(fields).encode()).canonical)


def chat(*turns: tuple[str, str] | dict[str, object], **fields: object) -> TypedRecord:
    return record(messages=[t if isinstance(t, dict) else {"role": t[0], "content": t[1]} for t in turns], **fields)


def encode(
    example: TypedRecord, template: str | None = None, max_tokens: int = MAX, bos: str | None = None, rules: int = RULES
) -> Tokens:
    tokenizer = make_tokenizer() if template or bos else base
    if template:
        tokenizer.chat_template = template
    if bos:
        tokenizer.bos_token = bos
    return tokenise(tokenizer, example, max_tokens, rules)


def shown(tokens: Tokens) -> str:
    """The decoded text with every run of learned tokens between « and »."""
    text, learned, run = "", False, []
    for token, target in [*zip(tokens.ids, tokens.mask, strict=True), (None, False)]:
        if target != learned or token is None:
            text += base.decode(run) + ("" if token is None and not learned else "«" if target else "»")
            learned, run = target, []
        if token is not None:
            run.append(token)
    return text


QUESTION, REPLY = ("user", "Who are you?"), ("assistant", "I am a small model.")


def test_single_turn_learns_the_answer_and_its_end() -> None:
    tokens = encode(chat(QUESTION, REPLY))
    assert shown(tokens) == f"{USER}Who are you?{END}\n{ANSWER}«I am a small model.{END}»\n"
    assert tokens.targets == len(base.encode(f"I am a small model.{END}"))


def test_every_answer_of_a_conversation_is_learned() -> None:
    tokens = encode(chat(("user", "Hi."), ("assistant", "Hello."), ("user", "Bye."), ("assistant", "Bye you.")))
    assert shown(tokens) == (f"{USER}Hi.{END}\n{ANSWER}«Hello.{END}»\n{USER}Bye.{END}\n{ANSWER}«Bye you.{END}»\n")


def test_weight_0_is_context() -> None:
    tokens = encode(
        chat(
            ("user", "Hi."),
            {"role": "assistant", "content": "Hello.", "weight": 0},
            ("user", "Bye."),
            ("assistant", "Bye you."),
        )
    )
    assert shown(tokens) == f"{USER}Hi.{END}\n{ANSWER}Hello.{END}\n{USER}Bye.{END}\n{ANSWER}«Bye you.{END}»\n"


def test_what_follows_the_last_learned_answer_is_dropped() -> None:
    tokens = encode(
        chat(
            ("user", "Hi."),
            ("assistant", "Hello."),
            ("user", "Bye."),
            {"role": "assistant", "content": "Bye.", "weight": 0},
        )
    )
    assert shown(tokens) == f"{USER}Hi.{END}\n{ANSWER}«Hello.{END}»\n"


def test_tool_calls_are_learned_and_tool_results_are_not() -> None:
    call = {"function": {"name": "find", "arguments": '{"town": "Elmford"}'}, "type": "function"}
    example = chat(
        QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, ("tool", "far"), REPLY,
        tools=[{"name": "find"}],
    )  # fmt: skip
    assert shown(encode(example, TOOLS)) == (
        f'<|im_start|>system\n[{{"name": "find"}}]{END}\n{USER}Who are you?{END}\n'
        f"{ANSWER}«find:Elmford{END}»\n<|im_start|>tool\nfar{END}\n{ANSWER}«I am a small model.{END}»\n"
    )


def test_a_turn_that_the_template_shows_without_its_thinking_is_not_learned() -> None:
    example = chat(("user", "Hi."), ("assistant", "Hello."), ("user", "Bye."), ("assistant", "Bye you."))
    before = f"{USER}Hi.{END}\n{ANSWER}Hello.{END}\n{USER}Bye.{END}\n{ANSWER}<think>\n"
    assert shown(encode(example, THINKING)) == f"{before}\n</think>\n\n«Bye you.{END}»\n"
    assert shown(encode(example, THINKING, rules=3)) == f"{before}«\n</think>\n\nBye you.{END}»\n"


def test_a_thought_that_the_prompt_opens_and_no_turn_shows_is_closed_before_the_answer() -> None:
    before = f"{USER}Who are you?{END}\n{ANSWER}"
    silent = f"{before}<think>\n\n</think>\n\n«I am a small model.{END}»\n"
    assert shown(encode(chat(QUESTION, REPLY), OPENED)) == silent
    learned = f"{before}<think>\n«\n</think>\n\nI am a small model.{END}»\n"
    assert shown(encode(chat(QUESTION, REPLY), OPENED, rules=3)) == learned, "as journals of before have it"
    thought = {"role": "assistant", "content": "I am.", "reasoning_content": "Hm."}
    assert shown(encode(chat(QUESTION, thought), OPENED)) == f"{before}<think>\n«Hm.\n</think>\n\nI am.{END}»\n"
    assert shown(encode(chat(QUESTION, REPLY), OPENED, rules=2)) == f"{before}«I am a small model.{END}»\n"


def test_marks_of_the_template_count_and_the_end_of_each_turn_with_them() -> None:
    example = chat(("user", "Hi."), ("assistant", "Hello."), QUESTION, REPLY)
    assert shown(encode(example, MARKED)) == (
        f"{USER}Hi.{END}\n{ANSWER}«Hello.{END}»\n{USER}Who are you?{END}\n{ANSWER}«I am a small model.{END}»\n"
    )
    assert shown(encode(example, MARKED, rules=1)) == (
        f"{USER}Hi.{END}\n{ANSWER}«Hello.»{END}\n{USER}Who are you?{END}\n{ANSWER}«I am a small model.»{END}\n"
    ), "as journals of before have it"


def test_marks_of_the_template_respect_weights() -> None:
    example = chat(("user", "Hi."), {"role": "assistant", "content": "Hello.", "weight": 0}, QUESTION, REPLY)
    assert shown(encode(example, MARKED)) == (
        f"{USER}Hi.{END}\n{ANSWER}Hello.{END}\n{USER}Who are you?{END}\n{ANSWER}«I am a small model.{END}»\n"
    )


def test_marks_in_a_template_without_an_end_of_turn_stay_as_they_are() -> None:
    """The role that follows is a token, too; it is not the end of the answer."""
    template = (
        "{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    example = chat(("user", "Hi."), ("assistant", "Hello."), QUESTION, REPLY)
    assert shown(encode(example, template)) == (
        "<|im_start|>Hi.<|im_start|>«Hello.»<|im_start|>Who are you?<|im_start|>«I am a small model.»"
    )


def test_no_token_reaches_over_the_end_of_the_prompt() -> None:
    """As in Qwen's vocabulary, two line ends are one token: the prompt opens a thought with one, and where none
    follows, the answer begins with the other."""
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["\n\n"])
    tokenizer.chat_template = THINKING
    tokens = tokenise(tokenizer, chat(QUESTION, REPLY), MAX, rules=3)
    served = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Who are you?"}], add_generation_prompt=True, return_dict=False
    )
    assert tokens.ids[: tokens.mask.index(True)] == served
    learned = [token for token, mask in zip(tokens.ids, tokens.mask, strict=True) if mask]
    assert tokenizer.decode(learned) == f"\n</think>\n\nI am a small model.{END}"
    before = tokenise(tokenizer, chat(QUESTION, REPLY), MAX, rules=1)
    assert before.ids[: len(served)] != served, "as journals of before have it"


def test_what_was_encoded_by_former_rules_is_found_by_its_digest() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = MARKED
    line = parse_line(
        json.dumps({"messages": [{"role": r, "content": c} for r, c in (QUESTION, REPLY)]}).encode()
    ).canonical
    former = tokenise(tokenizer, decode_record(line), MAX, rules=1)
    today = encoded(tokenizer, line, SFT, MAX)
    assert former.digest() != today.digest()
    assert encoded(tokenizer, line, SFT, MAX, former.digest()).digest() == former.digest()
    assert encoded(tokenizer, line, SFT, MAX, today.digest()).digest() == today.digest()
    assert encoded(tokenizer, line, SFT, MAX, "0" * 32).digest() == today.digest()


def test_thinking_of_earlier_turns_in_the_template_of_qwen() -> None:
    """An answer is learned as the model wrote it: the last one with its thought. The first one's was dropped from the
    text, so it is not learned, and that is said."""
    thinks = {"role": "assistant", "content": "Hello.", "reasoning_content": "Greet."}
    example = chat(("user", "Hi."), thinks, QUESTION, {**thinks, "content": "I am.", "reasoning_content": "Hm."})
    template = "{% set enable_thinking = true %}" + QWEN.read_text(encoding="utf-8")
    tokens = encode(example, template)
    assert shown(tokens) == (
        f"{USER}Hi.{END}\n{ANSWER}Hello.{END}\n{USER}Who are you?{END}\n"
        f"{ANSWER}<think>\n«Hm.\n</think>\n\nI am.{END}»\n"
    )
    assert (tokens.left_out, encode(chat(QUESTION, REPLY), template).left_out) == (1, 0)


def test_steps_of_one_turn_keep_their_thinking_in_the_template_of_qwen() -> None:
    call = {"function": {"name": "find", "arguments": {}}, "type": "function"}
    asks = {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [call]}
    says = {"role": "assistant", "content": "Far.", "reasoning_content": "Hm."}
    tokens = encode(
        chat(QUESTION, asks, ("tool", "far"), says),
        "{% set enable_thinking = true %}" + QWEN.read_text(encoding="utf-8"),
        max_tokens=1 << 20,
    )
    assert tokens.left_out == 0
    called = '<tool_call>\n{"name": "find", "arguments": {}}\n</tool_call>'
    result = f"{USER}<tool_response>\nfar\n</tool_response>{END}\n"
    assert shown(tokens).endswith(
        f"{ANSWER}<think>\n«Look.\n</think>\n\n{called}{END}»\n{result}{ANSWER}<think>\n«Hm.\n</think>\n\nFar.{END}»\n"
    )


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (tiny_model.CHAT_TEMPLATE, ""),
        (TOOLS, ""),
        (THINKING, ""),
        (OPENED, ""),
        (MARKED, ""),
        (QWEN.read_text(encoding="utf-8"), ""),
        (PARTED, "do not teach when to stop"),
        (COUNTING, "rewrites what is before the answer"),
        ("{{ raise_exception('only tools here') }}", "only tools here"),
        (None, "the model has no chat template"),
    ],
)
def test_a_template_that_spoils_conversations_is_named_whatever_they_say(template: str | None, problem: str) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    found = template_problem(tokenizer)
    assert problem in found if problem else not found


def test_a_template_with_marks_that_mark_nothing_is_rendered_by_prefixes() -> None:
    template = "{% if false %}{% generation %}{% endgeneration %}{% endif %}" + ALTERNATING
    assert shown(encode(chat(QUESTION, REPLY), template)).endswith(f"{ANSWER}«I am a small model.{END}»\n")


def test_letters_of_several_tokens_stay_whole() -> None:
    assert shown(encode(chat(QUESTION, ("assistant", "🦦é")))).endswith(f"{ANSWER}«🦦é{END}»\n")


def test_a_tokenizer_that_fails_is_named_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = make_tokenizer()

    def fail(*_: object) -> dict[str, int]:
        raise OverflowError("too much")

    monkeypatch.setattr(tokenizer, "get_added_vocab", fail)
    tokenizer.chat_template = MARKED
    assert "cannot be tokenised" in template_problem(tokenizer) and "too much" in template_problem(tokenizer)


def test_completion() -> None:
    tokens = encode(record(prompt="The mayor of Elmford", completion=" is Tom Reed."))
    assert shown(tokens) == f"The mayor of Elmford« is Tom Reed.{END}»"


def test_a_token_never_straddles_prompt_and_completion() -> None:
    prompt = base.encode("The ligh")
    assert base.encode("The lighthouse")[: len(prompt)] != prompt  # else this test shows nothing
    tokens = encode(record(prompt="The ligh", completion="thouse"))
    assert shown(tokens) == f"The ligh«thouse{END}»"
    assert tokens.ids[: len(prompt)] == prompt


def test_text_is_learned_but_for_its_first_token() -> None:
    tokens = encode(record(text="The bakery opens at five."))
    assert shown(tokens) == f"The« bakery opens at five.{END}»"
    assert tokens.mask == [False] + [True] * (len(tokens.ids) - 1)


def test_too_long_is_cut_at_the_left_of_the_prompt() -> None:
    whole = encode(chat(QUESTION, REPLY))
    cut = encode(chat(QUESTION, REPLY), max_tokens=len(whole.ids) - 3)
    assert (cut.cut, cut.targets) == (2, whole.targets)
    assert (cut.ids, cut.mask) == (whole.ids[2:-1], whole.mask[2:-1]), "what stands behind the end is not needed"


def test_the_cut_keeps_a_beginning_of_text() -> None:
    whole = encode(chat(QUESTION, REPLY))
    cut = encode(chat(QUESTION, REPLY), max_tokens=len(whole.ids) - 3, bos="<|im_start|>")
    assert cut.ids == whole.ids[:1] + whole.ids[3:-1]
    assert len(cut.mask) == len(cut.ids)
    assert cut.targets == whole.targets


def test_an_answer_that_just_fits_keeps_one_token_before_it() -> None:
    answer = encode(chat(QUESTION, REPLY)).targets
    assert shown(encode(chat(QUESTION, REPLY), max_tokens=answer + 1)) == f"\n«I am a small model.{END}»"
    with pytest.raises(RecordRefused, match=f"the answer alone has {answer} tokens, .* max_tokens is {answer}"):
        encode(chat(QUESTION, REPLY), max_tokens=answer)


@pytest.mark.parametrize(
    ("example", "template", "reason"),
    [
        (chat(REPLY), None, "nothing comes before the answer"),
        (chat(("assistant", "Hi."), QUESTION, REPLY), ALTERNATING, "start with user"),
        (chat(QUESTION, REPLY), "{{ messages | length }}", "rewrites what is before the answer"),
    ],
)
def test_refusals_say_why(example: TypedRecord, template: str | None, reason: str) -> None:
    with pytest.raises(RecordRefused, match=reason):
        encode(example, template)


def test_no_chat_template_is_refused_with_a_hint() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(RecordRefused, match="no chat template") as refusal:
        tokenise(tokenizer, chat(QUESTION, REPLY), MAX)
    assert "chat_template.jinja" in refusal.value.hint


def test_digest_depends_on_ids_and_mask() -> None:
    tokens = Tokens([1, 2, 3], [False, True, True])
    assert tokens.digest() == Tokens([1, 2, 3], [False, True, True], cut=5).digest()
    assert (
        len(
            {
                tokens.digest(),
                Tokens([1, 2, 4], tokens.mask).digest(),
                Tokens(tokens.ids, [False, False, True]).digest(),
            }
        )
        == 3
    )
    assert tokens.digest() == blake2b(bytes.fromhex("010000000200000003000000000101"), digest_size=16).hexdigest()


def sampled(example: TypedRecord, *answers: Sampled, template: str | None = None) -> Tokens:
    return encode(msgspec.structs.replace(example, sampled=list(answers)), template)


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(base.encode(text, add_special_tokens=False))


LETTERS = tuple(token for letter in "I am." for token in ids_of(letter)) + ids_of(END)
"""no tokenizer would write it so"""


def test_a_sampled_answer_is_learned_token_by_token() -> None:
    example = chat(QUESTION, ("assistant", "I am."))
    tokens, usual = sampled(example, Sampled("r", LETTERS)), encode(example)
    prompt = usual.ids[: usual.mask.index(True)]
    assert tokens.ids == [*prompt, *LETTERS] and tokens.mask == [False] * len(prompt) + [True] * len(LETTERS)
    assert tuple(usual.ids) != tuple(tokens.ids)


def test_the_prompt_is_that_of_the_engine_where_it_says_the_same() -> None:
    prompt = tuple(t for c in f"{USER}Who are you?" for t in ids_of(c)) + ids_of(f"{END}\n{ANSWER}")
    tokens = sampled(chat(QUESTION, ("assistant", "I am.")), Sampled("r", LETTERS, prompt))
    assert tokens.ids == [*prompt, *LETTERS]
    more = ids_of(f"<|im_start|>system\nBe kind.{END}\n") + prompt
    tokens = sampled(chat(QUESTION, ("assistant", "I am.")), Sampled("r", LETTERS, more))
    assert shown(tokens) == f"{USER}Who are you?{END}\n{ANSWER}«I am.{END}»", "the log does not have the system prompt"


TALK = chat(QUESTION, ("assistant", "I am."), ("user", "Bye."), ("assistant", "Bye you."))


def test_every_answer_that_was_sampled_and_the_others_as_text() -> None:
    bye = (*(t for c in "Bye you." for t in ids_of(c)), *ids_of(END))
    whole = f"{USER}Who are you?{END}\n{ANSWER}«I am.{END}»\n{USER}Bye.{END}\n{ANSWER}«Bye you.{END}»"
    for first, second in ((LETTERS, bye), (LETTERS, ()), ((), bye)):
        tokens = sampled(TALK, Sampled("a" if first else "", first), Sampled("b" if second else "", second))
        assert shown(tokens).rstrip("\n") == whole
        for answer in filter(None, (first, second)):
            at = next(n for n in range(len(tokens.ids)) if tuple(tokens.ids[n : n + len(answer)]) == answer)
            assert all(tokens.mask[at : at + len(answer)])
    assert sampled(TALK, Sampled(), Sampled()).digest() == encode(TALK).digest()


def test_an_answer_that_was_cut_off_does_not_teach_to_stop() -> None:
    tokens = sampled(TALK, Sampled("a", LETTERS[:-1]), Sampled("b", ids_of("Bye you.")))
    assert shown(tokens) == f"{USER}Who are you?{END}\n{ANSWER}«I am.»{END}\n{USER}Bye.{END}\n{ANSWER}«Bye you.»"


def test_thinking_that_the_log_does_not_have_is_learned_with_the_answer() -> None:
    said = ids_of(f"hm\n</think>\n\nI am.{END}")
    tokens = sampled(chat(QUESTION, ("assistant", "I am.")), Sampled("r", said), template=THINKING)
    assert shown(tokens) == f"{USER}Who are you?{END}\n{ANSWER}<think>\n«hm\n</think>\n\nI am.{END}»"


def test_marks_of_a_template_hold_for_what_was_not_sampled() -> None:
    tokens = sampled(TALK, Sampled("a", LETTERS), Sampled(), template=MARKED)
    assert shown(tokens).rstrip("\n") == (
        f"{USER}Who are you?{END}\n{ANSWER}«I am.{END}»\n{USER}Bye.{END}\n{ANSWER}«Bye you.{END}»"
    )


def test_a_completion_after_what_the_engine_was_asked() -> None:
    prompt, example = ids_of("Asked: "), record(prompt="Asked: ", completion="yes.")
    good = sampled(example, Sampled("r", (5, 6, 7), prompt))
    assert good.ids == [*prompt, 5, 6, 7] and good.targets == 3
    better = sampled(example, Sampled("r", (), prompt, 9))
    assert better.ids == [*prompt, *ids_of("yes."), 9] and better.targets == len(ids_of("yes.")) + 1
    ended = sampled(example, Sampled("r", (), prompt))
    assert ended.ids[-1] == base.eos_token_id


def test_token_ids_are_learned_as_they_are() -> None:
    """Without an end that they do not have, and without a text that another tokenizer would cut otherwise; the context
    is cut at its left."""
    ids = [7, 7, 7, 7, 300, 300, 301]
    given = record(prompt_token_ids=ids[:4], token_ids=ids[4:])
    assert encode(given) == Tokens(ids, [False] * 4 + [True] * 3)
    assert encode(given, max_tokens=5) == Tokens(ids[2:], [False] * 2 + [True] * 3, 2)
    assert encode(record(prompt_token_ids=[], token_ids=ids)).mask == [False] + [True] * 6, "nothing precedes the first"
    with pytest.raises(RecordRefused, match="the answer alone has 3 tokens"):
        encode(given, max_tokens=3)
    with pytest.raises(RecordRefused, match="no token to learn"):
        encode(record(prompt_token_ids=[], token_ids=[7]))
    encode(given).check_vocabulary(302)
    with pytest.raises(RecordRefused, match="it has token 301, the model has 301 tokens"):
        encode(given).check_vocabulary(301)
