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
from apollod.core import inputs as inp
from apollod.core.dreams.scenario import Turn
from apollod.supervisor.executor.holding_effects import ANSWER_TOKENS, anchor_id, shipped_prompts
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
    found, server = of(fx.FreezeAnchor("shipped:81"), tmp_path, lambda _: "x", scores=likeliest)
    assert isinstance(found, inp.AnchorCallFailed) and found.cause == "answer" and not server.requests
