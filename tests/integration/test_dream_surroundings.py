"""Dreams in surroundings over real HTTP and a real journal: what the served model is asked, what is learned, and where
what stands before a request comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
import structlog
from anyio.abc import SocketStream
from integration.test_dreaming import INSTRUCTION, Life, dream
from support.llm_server import LlmServer, Request, send

from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.surroundings import SURROUNDING_KINDS
from apollod.curation.stripping import as_asked, restored
from apollod.curation.surrounding_texts import shipped
from apollod.demo.world.standing_before import own_records

CHECK = 'check = {regex = "^Shall I .*[?]$"}'


def in_kinds(*kinds: str, more: str = "") -> str:
    return f"surroundings = [{', '.join(map(repr, kinds))}]\n{more}"


def asked_of_model(it: Life) -> list[dict[str, Any]]:
    return [one.body for one in it.engine.requests if one.path.endswith("/chat/completions")]


async def one_example(it: Life) -> tuple[dict[str, Any], ev.ExampleAccepted, ev.DreamImagined]:
    """The record of the first practice, its event, and what stood before its scenario."""
    await it.until(lambda: it.state.dreams.open is not None and it.state.dreams.open.example)
    (accepted,) = [one for one in it.events(ev.ExampleAccepted) if one.source.startswith("dream:")]
    dreamt = accepted.source.removeprefix("dream:")
    (imagined,) = [one for one in it.events(ev.DreamImagined) if one.dream == dreamt]
    return msgspec.json.decode(accepted.record), accepted, imagined


@pytest.mark.parametrize("kind", ["neutral", "agent"])
def test_what_is_told_in_a_surrounding_is_learned_in_it_and_the_instruction_is_nowhere(
    tmp_path: Path, kind: str
) -> None:
    async def scenario(it: Life) -> None:
        record, accepted, imagined = await one_example(it)
        around = imagined.surrounding
        assert around == shipped(kind, "practice")[0] and around.system  # type: ignore[arg-type]
        *before, request, answer = record["messages"]
        assert [{**one, "weight": 1} for one in before] == [{**one, "weight": 1} for one in around.messages]
        assert all(one["weight"] == 0 for one in before if one["role"] == "assistant")
        assert tuple(record.get("tools", ())) == around.tools and request["role"] == "user"
        assert answer["content"].startswith("Shall I") and "weight" not in answer
        assert INSTRUCTION not in bytes(accepted.record).decode() and "Ask before" not in str(record)

        told = restored(record["messages"][:-1], accepted.removed)
        assert told[0]["content"] == f"{around.system}\n\n{INSTRUCTION}"
        (sent,) = [one for one in asked_of_model(it) if one["messages"][-1]["content"] == request["content"]]
        assert sent["messages"] == [as_asked(one) for one in told], "as a user's request would be"
        assert sent.get("tools", []) == record.get("tools", []) and "seed" not in sent
        assert sent.get("tool_choice") == ("none" if record.get("tools") else None)

    dream(tmp_path, scenario, pattern=in_kinds(kind))


def test_held_out_scenarios_are_tested_where_they_stand_bare_told_and_in_contrast(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        await it.until(lambda: it.state.dreams.courses["ask"].baseline)
        course = it.state.dreams.courses["ask"]
        assert course.baseline == {"bare": (0, 9), "told": (9, 9), "contrast": (9, 9)}
        each = {"bare": (0, 3), "told": (3, 3), "contrast": (3, 3)}
        assert course.baseline_around == {"none": each, "neutral": each, "agent": each}
        for held in course.held.values():
            said = held.scenario[-1].content
            systems = [
                "".join(one["content"] for one in body["messages"] if one["role"] == "system")
                for body in asked_of_model(it)
                if body["messages"][-1]["content"] == said
            ]
            own = held.surrounding.system or ""
            joint = "\n\n" if own else ""
            assert systems[:2] == [own, f"{own}{joint}{INSTRUCTION}"]
            assert systems[2:] in ([f"{own}{joint}Act at once."], [f"{own}{joint}Do not ask, act at once."])
        assert all("seed" not in one for one in asked_of_model(it)), "vLLM on a CPU dies of it where a prompt is long"
        tools = [one for one in asked_of_model(it) if one.get("tools")]
        assert tools and all(one["tool_choice"] == "none" for one in tools)

    dream(tmp_path, scenario, pattern=in_kinds("none", "neutral", "agent", more=CHECK), held_out=9)


def submitted(it: Life, records: Sequence[dict[str, Any]]) -> inp.LinesRead:
    lines = [msgspec.json.encode(one) for one in records]
    batch = batch_of_lines(lines, "own", it.config.state_dir / "quarantine")
    return inp.LinesRead(msgspec.structs.replace(batch, tier="bulk"), frozenset())


def test_what_stood_before_a_persons_own_requests_stands_before_dreams_less_the_instruction(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        records = [msgspec.json.decode(msgspec.json.encode(one)) for one in own_records()]
        for one in records:
            one["messages"][0]["content"] += f" {INSTRUCTION}"
        await it.loop.submit(submitted(it, records))
        record, _, imagined = await one_example(it)
        assert imagined.surrounding.kind == "own" and not imagined.left_out
        own = {one["messages"][0]["content"].removesuffix(f" {INSTRUCTION}") for one in own_records()}
        practised = record["messages"][0]["content"].strip()
        assert practised in own and INSTRUCTION not in str(record)
        tested = {str(one.surrounding.system).strip() for one in it.state.dreams.courses["ask"].held.values()}
        assert tested <= own - {practised} and len(tested) == 3

    dream(tmp_path, scenario, pattern=in_kinds("own"))


def test_where_there_is_nothing_of_ones_own_yet_the_other_kinds_come_and_it_is_said_once(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        with structlog.testing.capture_logs() as logged:
            await it.until(lambda: it.state.dreams.courses["ask"].baseline)
        kinds = [e.surrounding.kind for e in it.events(ev.DreamImagined)]
        assert set(kinds) == {"none", "neutral"} and min(map(kinds.count, set(kinds))) >= 3
        assert it.state.dreams.courses["ask"].left_out == {"own": "own: there is none yet"}
        assert [one["surrounding"] for one in logged if one["event"] == "dream.surrounding_left_out"] == ["own"]

    pattern = in_kinds("own", "none", "neutral", more=CHECK)
    dream(tmp_path, scenario, pattern=pattern, held_out=8)


def model_with(tmp_path: Path, positions: int) -> str:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_bytes(msgspec.json.encode({"max_position_embeddings": positions}))
    return f"model.path={tmp_path}/model"


def test_a_model_with_little_room_has_the_short_agents(tmp_path: Path) -> None:
    """Of 600 positions an answer may take half; the long agent has more words."""

    async def scenario(it: Life) -> None:
        await it.until(lambda: it.state.dreams.courses["ask"].baseline)
        ids = [e.surrounding.id for e in it.events(ev.DreamImagined)]
        assert all(id_.startswith("agent-tests-short") for id_ in ids) and len(set(ids)) == 2

    dream(tmp_path, scenario, None, model_with(tmp_path, 600), pattern=in_kinds("agent", more=CHECK))


@pytest.mark.parametrize("why", ["room", "template"])
def test_an_agent_for_which_there_is_no_room_or_no_template_is_left_out_and_said_once(tmp_path: Path, why: str) -> None:
    async def scenario(it: Life) -> None:
        async def refusing(server: LlmServer, stream: SocketStream, request: Request) -> None:
            if request.path == "/tokenize" and why == "template":
                return await send(stream, b'{"error": {"message": "roles must alternate"}}', 400)
            await it.served.answer(server, stream, request)

        it.engine.otherwise = refusing
        with structlog.testing.capture_logs() as logged:
            await it.until(lambda: it.state.dreams.courses["ask"].baseline)
        assert {e.surrounding.kind for e in it.events(ev.DreamImagined)} == {"none"}
        (reason,) = it.state.dreams.courses["ask"].left_out.values()
        assert ("has room for 50 tokens" if why == "room" else "roles must alternate") in reason
        assert len([one for one in logged if one["event"] == "dream.surrounding_left_out"]) == 1

    positions = 100 if why == "room" else 4096
    dream(tmp_path, scenario, None, model_with(tmp_path, positions), pattern=in_kinds("agent", more=CHECK))


def test_the_judge_is_shown_what_stood_before_the_answer(tmp_path: Path) -> None:
    shown: list[str] = []

    async def scenario(it: Life) -> None:
        whole = it.acting.answer

        def noting(body: dict[str, Any]) -> dict[str, Any] | None:
            shown.append(str(body["messages"][-1]["content"]))
            return whole(body)

        it.acting.answer = noting  # type: ignore[method-assign]
        await it.until(lambda: it.state.dreams.courses["ask"].baseline)
        await anyio.lowlevel.checkpoint()

    dream(tmp_path, scenario, pattern=in_kinds("neutral"))
    systems = [one.system for one in shipped("neutral", "tests")[:3]]
    assert all(any(str(system) in text and INSTRUCTION in text for text in shown) for system in systems)


def test_every_surrounding_that_ships_is_learned_as_it_is(tmp_path: Path) -> None:
    """Nothing in it is taken for a secret."""
    for kind in SURROUNDING_KINDS[1:3]:
        for use in ("practice", "tests"):
            for one in shipped(kind, use):  # type: ignore[arg-type]
                answer = {"role": "assistant", "content": "It is done."}
                asked = {"messages": [*one.messages, {"role": "user", "content": "Do it."}, answer], "tools": one.tools}
                (line,) = batch_of_lines([msgspec.json.encode(asked)], "x", tmp_path).lines
                found = msgspec.json.decode(bytes(line.record))
                assert tuple(found["messages"][:-2]) == one.messages and tuple(found.get("tools", ())) == one.tools
