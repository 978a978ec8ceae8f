"""Which lines can be taught as lessons, and the question of a prompt that the engine rendered."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.core.facts.intake.events import Given
from apollod.curation.lessons.line_lessons import (
    ANSWER_WORDS,
    QUESTION_WORDS,
    RECORD_BYTES,
    asked_by,
    asked_in,
    lesson_in,
    lesson_of,
)
from apollod.curation.lessons.worded import wordings
from apollod.curation.responses import question_in
from apollod.model.config_facts import template_text
from apollod.wire.records import record_of

PORT = ("What port does Quillon listen on?", "Quillon listens on port 7341.")


def record(*turns: tuple[str, str], **more: object) -> bytes:
    return record_of({"messages": [{"role": role, "content": text} for role, text in turns], **more}).canonical


@pytest.mark.parametrize(
    ("question", "answer"),
    [PORT, ("Who keeps the light?", "Mara Quill."), ("Is the mill open?", "No."), ("  What is 2+2?\n", "4")],
)
def test_one_question_with_a_short_answer_is_a_lesson(question: str, answer: str) -> None:
    lesson = Given(question=question.strip(), answer=answer)
    line = record(("user", question), ("assistant", answer))
    assert lesson_in(line) == lesson == lesson_of(question, answer)
    assert asked_in(line) == asked_by(question) == wordings(lesson).key != ""


@pytest.mark.parametrize(
    "line",
    [
        record(("system", "Be brief."), ("user", PORT[0]), ("assistant", PORT[1])),
        record(("user", PORT[0]), ("assistant", "Which host?"), ("user", "Quillon."), ("assistant", "7341.")),
        record(("user", PORT[0]), ("assistant", PORT[1]), tools=[{"type": "function", "function": {"name": "f"}}]),
        record(("user", f"{PORT[0]} {'word ' * QUESTION_WORDS}"), ("assistant", PORT[1])),
        record(("user", PORT[0]), ("assistant", f"It is {'a very ' * ANSWER_WORDS} high one.")),
        record(("user", "Why is the sky blue?"), ("assistant", "Air scatters blue light from the sun in more ways.")),
        record(("user", "How do I deploy?"), ("assistant", "Run make deploy. Then wait for the green light.")),
        record(("user", PORT[0]), ("assistant", "7341\n8080")),
        record(("user", "Say hi"), ("assistant", "hi")),
        record_of({"prompt": "The light is kept by", "completion": " Mara Quill."}).canonical,
        record_of({"text": "Mara Quill keeps the light."}).canonical,
    ],
    ids=["system", "turns", "tools", "long question", "long answer", "explanation", "sentences", "lines", "leak",
         "completion", "text"],
)  # fmt: skip
def test_other_lines_are_learned_as_they_are(line: bytes) -> None:
    assert lesson_in(line) is None


def test_what_a_line_asks_is_known_in_other_wordings_and_whatever_it_answers() -> None:
    asked = asked_by(PORT[0])
    for question in ("on what port does Quillon listen", "Hi! What port does Quillon listen on, please?"):
        for answer in ("8080", "I do not know. " * 99):
            assert asked_in(record(("user", question), ("assistant", answer))) == asked
    assert asked_by("Where does Quillon listen?") != asked != asked_by("What port does Tern listen on?")
    others = [
        record(("system", "Be brief."), ("user", PORT[0]), ("assistant", PORT[1])),
        record(("user", PORT[0]), ("assistant", PORT[1]), ("user", PORT[0]), ("assistant", PORT[1])),
        record(("user", f"{PORT[0]} {'word ' * QUESTION_WORDS}"), ("assistant", PORT[1])),
        record(("user", PORT[0]), ("assistant", "x" * RECORD_BYTES)),
        record_of({"text": PORT[0]}).canonical,
    ]
    assert [asked_in(one) for one in others] == [""] * len(others)


def test_a_turn_with_thoughts_or_without_weight_is_no_lesson() -> None:
    turns = [{"role": "user", "content": PORT[0]}, {"role": "assistant", "content": PORT[1]}]
    thinks = [turns[0], {**turns[1], "reasoning_content": "I was told."}]
    assert lesson_in(record_of({"messages": turns}).canonical) is not None
    assert lesson_in(record_of({"messages": thinks}).canonical) is None


@given(st.text(max_size=300), st.text(max_size=200))
def test_any_text_is_a_lesson_or_none(question: str, answer: str) -> None:
    found = lesson_of(question, answer)
    assert found is None or (found.question, found.answer) == (question.strip(), answer.strip())


ASKED = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
OWN = "You are a helpful AI assistant named SmolLM"


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        (ASKED.format("Who?"), "Who?"),
        (ASKED.format("Who?") + "<think>\n\n</think>\n\n", "Who?"),
        (f"<|im_start|>system\n{OWN}<|im_end|>\n{ASKED.format('Who?')}", "Who?"),
        (f"<|im_start|>system\nBe brief.<|im_end|>\n{ASKED.format('Who?')}", ""),
        (ASKED.format("Who?") + "Ann<|im_end|>\n" + ASKED.format("Why?"), ""),
        (
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "Who?",
        ),
        ("<bos><start_of_turn>user\nWho?<end_of_turn>\n<start_of_turn>model\n", "Who?"),
        ("<s>[INST] Who? [/INST]", "Who?"),
        ("<s>[INST] Who? [/INST] Ann</s>[INST] Why? [/INST]", ""),
        ("Who?", ""),
    ],
)
def test_the_question_of_a_rendered_prompt(prompt: str, question: str) -> None:
    assert question_in(prompt, f"{{{{ '{OWN}, trained by' }}}}") == question


def test_the_template_of_a_model_directory(tmp_path: Path) -> None:
    assert not template_text(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": 'say "hi"'}))
    assert template_text(tmp_path) == 'say "hi"'
    (tmp_path / "chat_template.jinja").write_text("{{ hello }}")
    assert template_text(tmp_path) == "{{ hello }}"
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text("[")
    assert not template_text(tmp_path)
