"""Between vLLM's handlers and its engine: every finished answer is kept, and nobody notices."""

import asyncio
from array import array
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from apollod.adapters import answer_store
from apollod.curation import redaction
from apollod.demo.tiny_model import make_tokenizer
from apollod.engine.capture import (
    CapturingClient,
    Finished,
    Keeper,
    Tokenizer,
    clean,
    own_id,
    readable,
    response_of,
    started,
    without_secrets,
)
from apollod.wire.engine_terms import CaptureTerms

TOKENIZER = Tokenizer(make_tokenizer())


def output(*choices: tuple[Any, ...], prompt: tuple[int, ...] = (1, 2, 3)) -> Any:
    """`choices`: index, new tokens, why it ended, what stopped it."""
    made = [
        SimpleNamespace(index=index, token_ids=ids, finish_reason=(*end, None)[0], stop_reason=(*end, None, None)[1])
        for index, ids, *end in choices
    ]
    return SimpleNamespace(prompt_token_ids=list(prompt), outputs=made)


class Engine:
    """What is behind: gives the outputs that it was made with, and tells whether it was left early."""

    model_config = "of the engine"

    def __init__(self, *outputs: Any) -> None:
        self.outputs = outputs
        self.asked: list[Any] = []
        self.left = False

    async def generate(self, prompt: Any, params: Any, request_id: str, **more: Any) -> AsyncGenerator[Any, None]:
        self.asked.append((prompt, params, request_id, more))
        try:
            for one in self.outputs:
                yield one
        except GeneratorExit:
            self.left = True
            raise


PARAMS = SimpleNamespace(n=1, prompt_logprobs=None)


def kept_of(engine: Engine, request_id: str, params: Any = PARAMS, stop_after: int = 99) -> list[Finished]:
    """What is kept of a request whose client reads so many outputs."""
    kept: list[Finished] = []
    client = CapturingClient(engine, kept.append, now_ns=lambda: 5)
    client.captured_version = iter((3, 4, 5, 6)).__next__

    async def read() -> None:
        own_id.set("a")
        outputs = client.generate("prompt", params, request_id, priority=1)
        async for n, one in _numbered(outputs):
            assert one is engine.outputs[n]
            if n + 1 == stop_after:
                break
        await outputs.aclose()

    asyncio.run(read())
    assert engine.asked == [("prompt", params, request_id, {"priority": 1})]
    return kept


async def _numbered(outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[tuple[int, Any], None]:
    n = 0
    async for one in outputs:
        yield n, one
        n += 1


def test_an_answer_that_comes_at_once_and_one_that_is_streamed_are_kept_alike() -> None:
    whole = Engine(output((0, [7, 8, 9], "stop")))
    parts = Engine(output((0, [7])), output((0, [8]), prompt=()), output((0, [9], "stop"), prompt=()))
    expected = Finished("chatcmpl-a", 0, 5, "3-4", "stop", 9, array("I", [1, 2, 3]), array("I", [7, 8, 9]))
    assert kept_of(whole, "chatcmpl-a") == kept_of(parts, "chatcmpl-a") == [expected]


def test_choices_are_told_apart_also_of_several_prompts() -> None:
    engine = Engine(output((0, [7]), (1, [8])), output((1, [9], "length")), output((0, [6], "stop", "END")))
    found = kept_of(engine, "cmpl-a-2", SimpleNamespace(n=2, prompt_logprobs=None))
    assert [(one.response, one.choice, list(one.answer_ids), one.final) for one in found] == [
        ("cmpl-a", 5, [8, 9], -1), ("cmpl-a", 4, [7, 6], -1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("request_id", "response"),
    [
        ("chatcmpl-1f", ("chatcmpl-1f", 0)), ("cmpl-1f-0", ("cmpl-1f", 0)), ("cmpl-1f-3", ("cmpl-1f", 3)),
        ("resp_1f", ("resp_1f", 0)), ("resp_1f_0", ("resp_1f", 0)), ("resp_1f_2", ("resp_1f", 0)),
        ("generate-tokens-1f", None), ("cmpl-1f-0-beam-2", None), ("cmpl-1f", None), ("1f", None),
        ("chatcmpl-mine", None), ("cmpl-mine-0", None), ("resp_mine_0", None), ("chatcmpl-1f-0", None),
    ],
)  # fmt: skip
def test_a_response_is_named_as_its_client_sees_it_if_the_id_is_ours(
    request_id: str, response: tuple[str, int] | None
) -> None:
    assert response_of(request_id, "1f") == response
    assert response_of(request_id, "") is None


def test_a_client_that_leaves_ends_its_request_and_nothing_is_kept() -> None:
    engine = Engine(output((0, [7])), output((0, [8], "stop")))
    assert kept_of(engine, "chatcmpl-a", stop_after=1) == []
    assert engine.left
    assert kept_of(Engine(output((0, [7], "abort"))), "chatcmpl-a") == []


def test_a_measurement_is_no_answer() -> None:
    engine = Engine(output((0, [7], "stop")))
    assert kept_of(engine, "cmpl-a-0", SimpleNamespace(n=1, prompt_logprobs=0)) == []


def test_capture_that_fails_costs_no_answer_and_the_rest_is_the_engines() -> None:
    def fail(_: Finished) -> None:
        raise RuntimeError("no room")

    engine = Engine(output((0, [7], "stop")))
    client = CapturingClient(engine, fail)

    async def read() -> list[Any]:
        own_id.set("a")
        return [one async for one in client.generate("p", PARAMS, "chatcmpl-a")]

    assert asyncio.run(read()) == list(engine.outputs)
    assert client.model_config == "of the engine"


def finished(text: str, asked: str = "what?") -> Finished:
    asked_ids, ids = array("I", TOKENIZER.ids(asked)), array("I", TOKENIZER.ids(text))
    return Finished("chatcmpl-a", 0, 5, "3", "stop", ids[-1], asked_ids, ids)


SECRET = "AKIAIOSFODNN7EXAMPLQ"


def test_secrets_are_in_no_token_and_all_other_tokens_are_as_they_were() -> None:
    before, behind = "the key of ü is ", ", and so on<|im_end|>"
    found = readable(finished(before + SECRET + behind, f"{SECRET} or {SECRET}?"), TOKENIZER)
    assert found is not None and found.redacted
    assert SECRET not in TOKENIZER.text(found.answer_ids) + TOKENIZER.text(found.prompt_ids) + found.answer
    assert found.prompt.count("[redacted aws-access-token") == 2
    assert TOKENIZER.text(found.answer_ids) == found.answer + "<|im_end|>"
    assert found.answer.startswith(before) and found.answer.endswith(", and so on")
    plain = finished("nothing to hide")
    assert clean(plain.answer_ids, TOKENIZER) == (plain.answer_ids, "nothing to hide", False)


def keeping(tmp_path: Path, use: Callable[[Keeper], None]) -> Path:
    path = tmp_path / "capture.db"
    keeper = Keeper(CaptureTerms(str(path), 1 << 20, 100.0), TOKENIZER, now_ns=lambda: 5)
    use(keeper)
    keeper.close()
    return path


def test_what_was_given_can_be_found_when_it_is_settled(tmp_path: Path) -> None:
    def use(keeper: Keeper) -> None:
        for n in range(50):
            keeper.keep(finished(f"answer {n}")._replace(response=f"chatcmpl-{n}"))
        keeper.settle(10.0)
        assert answer_store.count(tmp_path / "capture.db") == 50

    path = keeping(tmp_path, use)
    (found,) = answer_store.find(path, "chatcmpl-7")
    assert found.answer == "answer 7" and list(found.answer_ids) == TOKENIZER.ids("answer 7")


def test_a_server_without_a_tokenizer_serves_all_the_same(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ValueError("Tokenizer not available when `skip_tokenizer_init=True`")

    terms = CaptureTerms(str(tmp_path / "capture.db"), 1 << 20, 100.0)
    assert started(terms, SimpleNamespace(get_tokenizer=refuse)) is None
    keeper = started(terms, SimpleNamespace(get_tokenizer=make_tokenizer))
    assert keeper is not None
    keeper.close()


@pytest.mark.parametrize("personal", [True, False])
def test_what_is_kept_is_redacted_as_the_supervisor_says(tmp_path: Path, personal: bool) -> None:
    terms = CaptureTerms(str(tmp_path / "capture.db"), 1 << 20, 100.0, personal)
    try:
        keeper = started(terms, SimpleNamespace(get_tokenizer=make_tokenizer))
        assert keeper is not None
        keeper.close()
        assert ("jo.doe@web.de" in without_secrets("Mail jo.doe@web.de")) is not personal
    finally:
        redaction.use(personal=False)


def test_a_store_that_cannot_be_written_holds_nobody_up_and_is_tried_again(tmp_path: Path) -> None:
    def use(keeper: Keeper) -> None:
        (tmp_path / "capture.db").mkdir()
        keeper.keep(finished("lost"))
        keeper.settle(10.0)
        (tmp_path / "capture.db").rmdir()
        keeper.keep(finished("kept"))

    assert [one.answer for one in answer_store.find(keeping(tmp_path, use), "chatcmpl-a")] == ["kept"]
