"""Which version sampled each token of an answer: read from vLLM's outputs, and told in trainers' names."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from apollod.engine.http.spans import Noted, Span, note_spans, noting, sampling, spans_of
from apollod.engine.http.versions import Names, Served

OLD = SimpleNamespace(version="3", start=0, end=2)
NEW = SimpleNamespace(version="4", start=2, end=5)


class Client:
    """An EngineClient whose outputs are given, those of each prompt by its name."""

    def __init__(self, **outputs: list[list[Any]]) -> None:
        self.outputs = outputs
        self.ended: list[str] = []

    async def generate(self, prompt: str, **_: Any) -> AsyncGenerator[Any, None]:
        try:
            for output in self.outputs[prompt]:
                await asyncio.sleep(0)
                yield SimpleNamespace(outputs=output)
        finally:
            self.ended.append(prompt)


def choice(index: int, finish: str | None = "length", **more: Any) -> Any:
    return SimpleNamespace(index=index, finish_reason=finish, **more)


async def answered(client: Client, *prompts: str) -> Noted:
    """Ask for all prompts in tasks of their own, as vLLM does, the last one first to be read."""

    async def read(outputs: Any) -> None:
        async for _ in outputs:
            pass

    with noting() as noted:
        asked = [client.generate(prompt) for prompt in prompts]
        for outputs in reversed(asked):
            await asyncio.create_task(read(outputs))
    return noted


def test_the_spans_of_each_choice_come_in_the_order_of_prompts_and_choices() -> None:
    client = Client(
        a=[[choice(0, None)], [choice(1, weight_versions=[NEW]), choice(0, weight_versions=[OLD, NEW])]],
        b=[[choice(0, weight_versions=[OLD])]],
    )
    note_spans(client)
    noted = asyncio.run(answered(client, "a", "b"))
    both = [Span(3, 0, 2), Span(4, 2, 5)]
    assert noted.choices(3) == [both, both[1:], both[:1]]
    assert noted.choices(2) == [None, None], "what does not fit the answer is not told"
    assert sorted(client.ended) == ["a", "b"]


def test_nothing_is_noted_outside_of_a_request_of_ours() -> None:
    client = Client(a=[[choice(0, weight_versions=[OLD])]])
    note_spans(client)

    async def work() -> Noted:
        with noting() as noted:
            pass
        async for _ in client.generate("a"):
            pass
        return noted

    assert asyncio.run(work()).choices(1) == [None]


def test_a_client_that_leaves_ends_its_request() -> None:
    client = Client(a=[[choice(0, None)], [choice(0)]])
    note_spans(client)

    async def work() -> None:
        with noting():
            outputs = client.generate("a")
            await anext(outputs)
            await outputs.aclose()
            assert client.ended == ["a"]

    asyncio.run(work())


def test_a_vllm_that_tells_no_versions_or_not_ours_is_no_error() -> None:
    assert spans_of(None) is None
    assert spans_of([SimpleNamespace(version="default", start=0, end=1)]) is None
    client = Client(a=[[choice(0)]])
    note_spans(client)
    assert asyncio.run(answered(client, "a")).choices(1) == [None]


def test_spans_are_told_in_the_trainers_names() -> None:
    names = Names()
    names.give(4, "their-4")
    told = sampling(names, 3, 5, [[Span(3, 0, 2), Span(4, 2, 5)], [Span(3, 0, 2), Span(5, 2, 3)], None, []])
    assert told.version == "3-5"
    named, numbered, unknown, empty = told.choices
    assert named.version == "their-4"
    assert named.spans == [{"version": "3", "start": 0, "end": 2}, {"version": "their-4", "start": 2, "end": 5}]
    assert numbered.version == "3-5" and unknown == ("3-5", None) and empty == ("3-5", [])
    assert sampling(names, 4, 4, []).version == "their-4" and sampling(names, 5, 5, []).version == "5"


def test_a_name_comes_with_the_version_that_an_update_brings() -> None:
    served = Served()
    served.announce(3, salted=False)
    served.names.coming = "theirs"
    served.announce(3, salted=False)
    served.announce(2, salted=False)
    assert [served.names.of(version) for version in (2, 3)] == ["2", "3"], "neither is new"
    served.announce(4, salted=False)
    assert served.names.given(4) == "theirs"
    served.names.coming = ""
    served.announce(5, salted=False)
    assert (served.names.of(5), served.names.given(5)) == ("5", "")
