"""What the served model is asked to freeze an anchor, over real HTTP, and what its answers and failures become."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from integration.test_lesson_calls import TOOTHLESS, likeliest, of
from support.llm_server import answers
from support.secret_samples import WITH

from apollod.adapters.journal import blobs
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.shared.missing_anchors import SHIPPED, shipped_name
from apollod.core.surroundings import Surrounding
from apollod.supervisor.executor.holding_effects import ANSWER_CHARACTERS, ANSWER_TOKENS, anchor_id, shipped_prompts
from apollod.wire.records import record_of
from apollod.wire.teacher import read_teacher


def test_a_prompt_that_ships_is_answered_greedily_and_what_was_thought_of_it_kept(tmp_path: Path) -> None:
    found, server = of(fx.FreezeAnchor("shipped:2"), tmp_path, lambda _: "By far.", scores=likeliest)
    assert isinstance(found, inp.AnchorAnswered)
    (asked,) = [one.body for one in server.requests if one.path.endswith("/chat/completions")]
    shipped = shipped_prompts()[1]
    assert asked["messages"] == [{"role": "user", "content": shipped.prompt}]
    assert (asked["temperature"], asked["max_tokens"]) == (0.0, ANSWER_TOKENS)
    said = msgspec.json.decode(found.record)["messages"]
    assert said == [*asked["messages"], {"role": "assistant", "content": "By far."}]
    blob = (tmp_path / blobs.NAME / found.teacher).read_bytes()
    teacher = read_teacher(blob)
    assert teacher.version == 4 and len(teacher.ids) == teacher.k * len(teacher.answer)
    assert (found.wanted, found.sort, found.first, found.last) == ("shipped:2", shipped.sort, 4, 4)
    assert found.anchor == anchor_id(bytes(found.record), found.teacher) and len(found.anchor) == 32


def test_an_answer_that_is_given_is_not_asked_for(tmp_path: Path) -> None:
    wanted = fx.FreezeAnchor("lesson:L1:1", "lesson", (Turn("user", "Which port?"),), "Port 7341.")
    found, server = of(wanted, tmp_path, lambda _: "never", scores=likeliest)
    assert isinstance(found, inp.AnchorAnswered) and found.sort == "lesson"
    assert not [one for one in server.requests if one.path.endswith("/chat/completions")]
    assert msgspec.json.decode(found.record)["messages"][-1]["content"] == "Port 7341."


def test_of_a_contrast_all_that_was_told_is_scored_and_the_contrast_alone_is_held(tmp_path: Path) -> None:
    tools = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},)
    around = Surrounding("agent", "a", ({"role": "system", "content": "You are Mira."},), tools)
    told = "Answer in capitals.\n\nAct at once."
    wanted = fx.FreezeAnchor(
        "contrast:d4", "contrast", (Turn("user", "Open it."),), "I OPEN IT.", "", around, "Act at once.", told
    )
    found, server = of(wanted, tmp_path, lambda _: "never", scores=likeliest)
    assert isinstance(found, inp.AnchorAnswered) and found.sort == "contrast"
    systems = {one.body["messages"][0]["content"] for one in server.requests if "messages" in one.body}
    assert systems == {f"You are Mira.\n\n{told}"}
    assert all(one.body["tools"] == list(tools) for one in server.requests if "messages" in one.body)
    record = msgspec.json.decode(found.record)
    assert record["messages"][0]["content"] == "You are Mira.\n\nAct at once." and record["tools"]
    assert record["messages"][-1] == {"role": "assistant", "content": "I OPEN IT."}


@pytest.mark.parametrize(
    ("says", "scores", "cause"),
    [
        ("By far.", TOOTHLESS, "unable"),
        ("By far.", answers({"error": {"message": "later"}}, 503), "busy"),
        ("  ", likeliest, "answer"),
        (WITH[4].replace("§", ""), likeliest, "answer"),
    ],
)
def test_whatever_goes_wrong_is_an_answer_too(says: str, scores: Any, cause: str, tmp_path: Path) -> None:
    found, _ = of(fx.FreezeAnchor("shipped:1"), tmp_path, lambda _: says, scores=scores)
    assert isinstance(found, inp.AnchorCallFailed) and (found.wanted, found.cause) == ("shipped:1", cause)
    assert found.reason and "ghp_" not in found.reason
    assert not (tmp_path / blobs.NAME).exists()


def test_a_prompt_that_does_not_ship_is_left_out(tmp_path: Path) -> None:
    found, server = of(fx.FreezeAnchor(shipped_name(SHIPPED + 1)), tmp_path, lambda _: "x", scores=likeliest)
    assert isinstance(found, inp.AnchorCallFailed) and found.cause == "answer" and not server.requests


QUESTION = "Which port does Quillon use?"
RENDERED = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
LONG = "word " * 100


def accepted(record: dict[str, Any]) -> ev.ExampleAccepted:
    made = record_of(record)
    return ev.ExampleAccepted(made.id, msgspec.Raw(made.canonical), "feedback", 0)


def said(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        ({"prompt": RENDERED, "completion": "Port 7341."}, "Port 7341."),
        (said(QUESTION, "<think>\nHm.\n</think>\n\nPort 7341."), "Port 7341."),
        (said(QUESTION, LONG), LONG[:ANSWER_CHARACTERS].rpartition(" ")[0]),
        (said(QUESTION, "x" * 500), "x" * ANSWER_CHARACTERS),
    ],
)
def test_an_approved_answer_is_frozen_as_it_was_given(record: dict[str, Any], answer: str, tmp_path: Path) -> None:
    event = accepted(record)
    wanted = fx.FreezeAnchor(f"approved:{event.example}", "approved", example=event.example)
    found, server = of(wanted, tmp_path, lambda _: "never", scores=likeliest, events=[event])
    assert isinstance(found, inp.AnchorAnswered) and found.sort == "approved" and found.question == "port quillon use"
    assert not [one for one in server.requests if one.path.endswith("/chat/completions")]
    assert msgspec.json.decode(found.record) == said(QUESTION, answer)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (said(f"Is {WITH[4].replace('§', '')} my token?", "Yes."), "secret"),
        (said(QUESTION, WITH[4].replace("§", "")), "secret"),
        ({"prompt": RENDERED + "Hm", "completion": "Port 7341."}, "no question with one answer"),
        ({"text": "Port 7341."}, "no question with one answer"),
        (None, "not in this journal"),
    ],
)
def test_nothing_else_of_an_example_is(record: dict[str, Any] | None, why: str, tmp_path: Path) -> None:
    event = accepted(record or {"text": "another"})
    example = event.example if record else "f" * 32
    wanted = fx.FreezeAnchor(f"approved:{example}", "approved", example=example)
    found, server = of(wanted, tmp_path, lambda _: "never", scores=likeliest, events=[event])
    assert isinstance(found, inp.AnchorCallFailed) and found.cause == "answer" and why in found.reason
    assert not server.requests and "ghp_" not in found.reason
