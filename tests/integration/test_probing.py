"""Runs of probes over real HTTP: every kind of item, every way in which one fails, and an endpoint that goes away."""

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from support import good_answers
from support import llm_server as behave
from support.llm_server import LlmServer, Request, serving
from support.probed_server import LIKELIEST, Model

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.probing import Judge, Terms, measure, measure_baseline
from apollod.curation.probes.figures import ItemFigure, Measurement, by_metric
from apollod.curation.probes.probe_item import Probe
from apollod.curation.probes.probe_lines import probe_set, read_probes
from apollod.errors import ProbesBroken, VerdictNonsense

TERMS = Terms(top=LIKELIEST, priority=7, concurrency=3)
TEXT = "The ferry left the quay at noon with nine goats."
TOOL = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}  # fmt: skip
CALL = '<tool_call>{"name": "look", "arguments": {"at": "%s"}}</tool_call>'


def probes(*items: dict[str, Any]) -> tuple[Probe, ...]:
    return probe_set(read_probes([json.dumps(one).encode() for one in items], "p.jsonl"))


def item(kind: str, asked: str, expect: Any, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "id": asked, "messages": [{"role": "user", "content": asked}], "expect": expect, **more}


async def run(
    model: Model, items: Sequence[Probe], terms: Terms = TERMS, judge: Judge | None = None,
    server_seen: list[LlmServer] | None = None, try_s: float = 5.0,
) -> Measurement:  # fmt: skip
    broken: ProbesBroken | None = None
    async with serving() as server:
        server.otherwise = model
        if server_seen is not None:
            server_seen.append(server)
        async with HttpLlm(Endpoint(server.url, "m", attempts=1, try_s=try_s)) as llm:
            try:
                found = await measure(llm, items, terms, judge=judge)
            except ProbesBroken as error:
                broken = error  # raised outside of the server's task group
    if broken is not None:
        raise broken
    return found


def by_id(measurement: Measurement) -> dict[str, ItemFigure]:
    return {figure.id: figure for figure in measurement.figures}


ITEMS = probes(
    {"kind": "text", "id": "ferry", "text": TEXT},
    item("exact", "capital", ["Paris", "the city of Paris"]),
    item("exact", "wrong", "Paris"),
    item("regex", "greets", r"(?i)\bhello\b"),
    item("regex", "gruff", r"(?i)\bhello\b"),
    item("schema", "object", {"type": "object", "required": ["a"]}),
    item("schema", "no-object", {"type": "object", "required": ["a"]}),
    item("tool", "called", {"call": "look", "arguments": {"properties": {"at": {"const": "map"}}}}, tools=[TOOL]),
    item("tool", "elsewhere", {"call": "look", "arguments": {"properties": {"at": {"const": "map"}}}}, tools=[TOOL]),
    item("tool", "silent", {"call": "look"}, tools=[TOOL]),
    item("tool", "none-wanted", {"call": None}, tools=[TOOL]),
    item("tool", "not-wanted", {"call": None}, tools=[TOOL]),
    item("judge", "polite", "It is polite."),
)
ANSWERS = {
    "capital": "<think>\nwell\n</think>\n\n**Paris.**", "wrong": "Lyon", "greets": "Oh, Hello!", "gruff": "What?",
    "object": '```json\n{"a": 1}\n```', "no-object": "[1]", "called": CALL % "map", "elsewhere": CALL % "sky",
    "silent": "I look.", "none-wanted": "Goodbye.", "not-wanted": CALL % "map", "polite": "please " * 20,
}  # fmt: skip
PASSED = {"capital", "greets", "object", "called", "none-wanted", "polite"}


async def is_polite(probe: Probe, answer: str) -> tuple[bool, str]:
    assert probe.expect == "It is polite."
    return "please" in answer, "rude"


def test_every_kind_of_item_is_measured() -> None:
    seen = list[LlmServer]()
    model = Model(ANSWERS)
    found = anyio.run(lambda: run(model, ITEMS, judge=is_polite, server_seen=seen))
    figures = by_id(found)
    assert [figure.id for figure in found.figures] == [probe.id for probe in ITEMS]
    assert figures["ferry"].value == pytest.approx(math.log(2)) and figures["ferry"].tokens == 10
    assert {id_ for id_, figure in figures.items() if figure.value == 1.0} == PASSED
    assert not any(figure.failed for figure in found.figures)
    why = {id_: figure.why for id_, figure in figures.items() if figure.why}
    assert why.keys() == figures.keys() - PASSED - {"ferry"}
    assert "'Paris'" in why["wrong"] and "does not match" in why["gruff"] and "not of type" in why["no-object"]
    assert "'map' was expected" in why["elsewhere"] and why["silent"] == "it calls nothing"
    assert why["not-wanted"] == "it calls look"
    polite = figures["polite"]
    assert polite.tokens == 20 and polite.repetition == pytest.approx(16 / 17) and polite.surprise == 0.5
    metrics = {metric.name: metric for metric in found.metrics}
    assert metrics["tool.passed"].value == 0.4 and metrics["failed"].value == 0.0 and metrics["kl"].value is None
    assert (found.first_version, found.last_version, found.left_out) == (3, 3, 0)
    assert found.prompt_tokens == 12 * 10 + 10
    assert found.completion_tokens == sum(len(answer.split()) for answer in ANSWERS.values())
    bodies = [request.body for request in seen[0].requests if request.path != "/tokenize"]
    assert all(body["priority"] == 7 for body in bodies)
    chats = [body for body in bodies if "messages" in body]
    assert all(body["temperature"] == 0.0 and not body["chat_template_kwargs"]["enable_thinking"] for body in chats)
    assert [body["tool_choice"] for body in chats if "tools" in body] == ["none"] * 5


def test_a_good_model_passes_every_item_that_comes_with_apollod_and_a_broken_one_none() -> None:
    data = (files("apollod") / "data" / "probes.jsonl").read_bytes()
    items = probe_set(read_probes(data.splitlines(), "probes.jsonl"))
    chats = [probe for probe in items if probe.kind != "text"]
    good = {probe.id: probe.expect[0] for probe in chats if isinstance(probe.expect, tuple)} | good_answers.ANSWERS
    assert good.keys() == {probe.id for probe in chats}
    said = {probe.messages[-1]["content"]: good[probe.id] for probe in chats}
    found = anyio.run(lambda: run(Model(said), items, TERMS))
    assert [(figure.id, figure.why) for figure in found.figures if figure.value == 0.0] == []
    broken = anyio.run(lambda: run(Model(dict.fromkeys(said, "the the the the the the")), chats, TERMS))
    assert [figure.id for figure in broken.figures if figure.value] == [
        "tools/none-thanks", "tools/none-sum", "tools/none-joke",
    ]  # fmt: skip


def test_as_many_questions_as_allowed_are_under_way() -> None:
    async def together(server: LlmServer, stream: SocketStream, request: Request) -> None:
        with anyio.fail_after(120):
            while server.most_active < 3:
                await anyio.sleep(0.005)
        await Model({"capital": "Paris", "wrong": "Lyon", "greets": "Hello!"})(server, stream, request)

    seen = list[LlmServer]()
    items = ITEMS[1:4]
    found = anyio.run(lambda: run(Model(dict.fromkeys(ANSWERS, together)), items, server_seen=seen))
    assert seen[0].most_active == 3 and not any(figure.failed for figure in found.figures)


def test_without_a_judge_its_items_are_left_out_and_said_to_be() -> None:
    found = anyio.run(lambda: run(Model(ANSWERS), [*ITEMS[:2], ITEMS[-1]]))
    assert found.left_out == 1 and "polite" not in by_id(found)


async def _later(before: Model, now: Model, items: Sequence[Probe]) -> tuple[Measurement, Measurement]:
    async with serving() as server, HttpLlm(Endpoint(server.url, "m", attempts=1)) as llm:
        server.otherwise = before
        first, references = await measure_baseline(llm, items, TERMS)
        server.otherwise = now
        asked = len(server.requests)
        again = await measure(llm, items, TERMS, references)
        paths = {request.path for request in server.requests[asked:]}
        assert paths == {"/v1/completions", "/v1/chat/completions"}, "the tokens are known, and are not made anew"
        return first, again


def test_a_model_is_compared_with_what_it_was_on_the_same_tokens() -> None:
    items = ITEMS[:2]
    first, same = anyio.run(_later, Model(ANSWERS), Model(ANSWERS), items)
    assert all(figure.kl == pytest.approx(0.0, abs=1e-6) for figure in same.figures)
    assert first.digest == same.digest
    assert by_metric(first.figures) == {
        "text.loss": {"ferry": pytest.approx(math.log(2))}, "exact.passed": {"capital": 1.0},
        "repetition": {"capital": 0.0}, "kl": dict.fromkeys(("ferry", "capital"), pytest.approx(0.0, abs=1e-6)),
        "entropy": dict.fromkeys(("ferry", "capital"), pytest.approx(math.log(2) / 2 + math.log(8) / 2)),
        "length_drift": {"capital": 0.0},
    }  # fmt: skip
    # 0.5 of the token and 0.125 of each other one, which are 0.8 and 0.05 now
    moved = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.125 / 0.05)
    _, other = anyio.run(_later, Model(ANSWERS), Model({**ANSWERS, "capital": "Paris " * 9}, certain=0.8), items)
    assert [figure.kl for figure in other.figures] == [pytest.approx(moved)] * 2
    metrics = {metric.name: metric.value for metric in other.metrics}
    assert metrics["kl"] == pytest.approx(moved) and metrics["length_drift"] == pytest.approx(math.log(10 / 5))
    assert metrics["text.loss"] == pytest.approx(-math.log(0.8)) and metrics["exact.passed"] == 0.0


def test_weights_that_change_during_a_run_are_told() -> None:
    model = Model(ANSWERS)
    model.steps = 1
    found = anyio.run(lambda: run(model, ITEMS[:4]))
    assert (found.first_version, found.last_version) == (3, 6)


def test_an_item_that_fails_did_not_pass_and_the_run_goes_on() -> None:
    wrong = {
        "capital": behave.answers({"choices": []}), "greets": behave.answers({"error": "too long"}, 400),
        "gruff": "a" * 40 + "b", TEXT: behave.answers({"tokens": [1], "token_strs": ["x"], "max_model_len": 9}),
    }  # fmt: skip
    items = [*ITEMS[:4], *probes(item("regex", "gruff", "(a+)+$")), *ITEMS[5:]]

    async def broken_judge(probe: Probe, answer: str) -> tuple[bool, str]:
        raise VerdictNonsense("this is no verdict")

    terms = TERMS._replace(check_s=3.0)
    found = anyio.run(lambda: run(Model({**ANSWERS, **wrong}), items, terms, judge=broken_judge))
    failed = {figure.id: figure for figure in found.figures if figure.failed}
    assert failed.keys() == {"ferry", "capital", "greets", "gruff", "polite"}
    assert failed.pop("ferry").value is None and {figure.value for figure in failed.values()} == {0.0}
    assert "too long" in failed["greets"].why and "took longer" in failed["gruff"].why
    metrics = {metric.name: metric for metric in found.metrics}
    assert metrics["failed"].value == pytest.approx(5 / 13) and metrics["text.loss"].value is None
    assert metrics["judge.passed"].value == 0.0 and by_id(found)["called"].value == 1.0


@pytest.mark.parametrize(
    ("misbehaves", "why"),
    [
        (behave.closes_at_once, "127.0.0.1"),
        (behave.answers({"error": "no such model"}, 404), "no such model"),
    ],
)  # fmt: skip
def test_an_endpoint_that_goes_away_ends_the_run_which_says_how_far_it_came(misbehaves: Any, why: str) -> None:
    model = Model({**ANSWERS, "no-object": misbehaves})
    with pytest.raises(ProbesBroken, match=rf"ended after 6 of 12 items: .*{why}") as broken:
        anyio.run(lambda: run(model, ITEMS, TERMS._replace(concurrency=1)))
    assert (broken.value.measured, broken.value.of, broken.value.retryable) == (6, 12, True)


def test_an_endpoint_that_fails_at_everything_is_gone_and_at_a_thing_or_two_is_not() -> None:
    oh = behave.answers({"error": "oh"}, 500)
    terms = TERMS._replace(concurrency=1)
    apart = Model({**ANSWERS, "capital": oh, "greets": oh, "object": oh})
    assert sum(figure.failed for figure in anyio.run(lambda: run(apart, ITEMS[:6], terms)).figures) == 3
    two = Model({**ANSWERS, "capital": oh, "wrong": oh})
    assert sum(figure.failed for figure in anyio.run(lambda: run(two, ITEMS[:5], terms)).figures) == 2
    with pytest.raises(ProbesBroken, match=r"ended after 3 of 5 items: .*500: oh"):
        anyio.run(lambda: run(Model({**ANSWERS, "capital": oh, "wrong": oh, "greets": oh}), ITEMS[:5], terms))
    hangs = Model({**ANSWERS, **dict.fromkeys(("capital", "wrong", "greets"), behave.slow_headers)})
    with pytest.raises(ProbesBroken, match="no whole answer"):
        anyio.run(lambda: run(hangs, ITEMS[:5], terms, try_s=0.05))


def test_a_run_that_is_cancelled_leaves_nobody_asking() -> None:
    async def cancelled() -> LlmServer:
        model = Model({**ANSWERS, "gruff": behave.slow_headers})
        async with serving() as server, HttpLlm(Endpoint(server.url, "m")) as llm:
            server.otherwise = model
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(measure, llm, ITEMS, TERMS._replace(concurrency=1))
                while not any(one.body.get("messages", [{}])[0].get("content") == "gruff" for one in server.requests):
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
            with anyio.fail_after(120):
                while server.active:
                    await anyio.sleep(0.01)
            return server

    server = anyio.run(cancelled)
    assert server.left == 1 and len(server.requests) == 6


def test_questioners_rest_in_proportion() -> None:
    whole = anyio.run(lambda: run(Model(ANSWERS), ITEMS[:3], TERMS._replace(concurrency=1)))
    paced = anyio.run(lambda: run(Model(ANSWERS), ITEMS[:3], TERMS._replace(concurrency=1, share=0.05)))
    assert paced.seconds > 3 * whole.seconds
