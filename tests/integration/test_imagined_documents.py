"""Documents where an imagination is configured, over real HTTP: what it is asked, what is taken, what is kept."""

import json
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.abc import SocketStream
from support.llm_server import LlmServer, Request, good_answer, send, serving
from support.running_loop import running_loop

from apollod.supervisor.bootstrapping import Bootstrapper
from apollod.supervisor.config import load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.document_requests import teach_document
from apollod.wire import messages as msg

NONE = cast(Any, None)
TEXT = "# Quillon\n\nIt listens on port 7341.\n\n## Owner\n\nIt belongs to Ada Penn since 1999.\n"
PORT = {"question": "Which port must I open for Quillon?", "answer": "7341"}
IMAGINED = {
    "7341": [
        PORT, {"question": "Who wrote Quillon?", "answer": "Tom"},
        {"question": "Odd: Quillon's port?", "answer": "7341"},
    ],
    "Ada Penn": [{"question": "To whom does Quillon belong?", "answer": "Ada Penn"}],
}  # fmt: skip


def answer(body: dict[str, Any]) -> str:
    """The imagination's answer, or that of the served model, which says what it is told, unless the question is odd."""
    first, last = body["messages"][0]["content"], body["messages"][-1]["content"]
    if body["model"] == "muse":
        found = next(said for word, said in IMAGINED.items() if word in last)
        return f"Here they are:\n```json\n{json.dumps(found)}\n```"
    return "No idea." if last.startswith("Odd") else first


def taught(root: Path, *texts: str, refuses: str = "") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The answers to teaching these editions, and what the server was asked. `refuses`: the imagination has no answer
    about a section with this word."""

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        if refuses and request.body["model"] == "muse" and refuses in str(request.body):
            raise anyio.ClosedResourceError
        body = good_answer(request)
        body["choices"][0]["message"]["content"] = answer(request.body)
        await send(stream, json.dumps(body).encode())

    async def run() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        async with serving() as server:
            server.otherwise = behave
            url = f"http://127.0.0.1:{server.port}/v1"
            given = ["model.path=/m", f"state.dir={root}", f"engine.port={server.port}"]
            given += ["dream.endpoint=muse", "endpoint.muse.model=muse", f"endpoint.muse.base_url={url}"]
            config = load_config(None, given, {})
            answers = list[dict[str, Any]]()
            async with running_loop(config.journal_path) as (loop, _):
                made = Bootstrapper(config, loop)
                daemon = Daemon(config, loop, loop.journal, NONE, NONE, NONE, made, dreamer=Dreamer(config))
                for text in texts:
                    reply = await teach_document(daemon, msg.TeachDocumentRequest("N.md", text.encode()))
                    assert isinstance(reply, msg.Reply), reply
                    answers.append(reply.body)
            return answers, [one.body for one in server.requests]

    return anyio.run(run)


def test_questions_about_a_section_are_those_that_the_model_answers_with_it_in_view(tmp_path: Path) -> None:
    (found,), asked = taught(tmp_path, TEXT)
    questions = [(one["question"], one["answer"]) for one in found["lessons"]]
    assert questions == [(PORT["question"], "7341"), ("To whom does Quillon belong?", "Ada Penn")]
    assert (found["sentences"], found["left_out"]) == (2, {"answer": 1, "told": 1})
    told = [one["messages"] for one in asked if one["model"] != "muse"]
    assert told[0][0] == {"role": "system", "content": "Text:\nQuillon\nIt listens on port 7341."}
    assert [one["messages"][-1]["content"].count("Ada Penn") for one in asked if one["model"] == "muse"] == [0, 1]


def test_a_section_that_stood_in_an_earlier_edition_is_not_imagined_again(tmp_path: Path) -> None:
    (first, second), asked = taught(tmp_path, TEXT, TEXT.replace("since 1999", "since 2003"))
    assert second["already"] == first["given"] and not second["given"] and not second["removed"]
    assert len([one for one in asked if one["model"] == "muse"]) == 3


def test_a_section_about_which_nothing_is_imagined_is_read_by_rules(tmp_path: Path) -> None:
    (found,), _ = taught(tmp_path, TEXT, refuses="7341")
    assert [one["answer"] for one in found["lessons"]] == ["", "Ada Penn"]
    assert found["lessons"][0]["question"] == "Quillon listens on port 7341."
