"""The engine's own tokens: what real clients were answered is learned token by token, from logs and by ratings."""

import json
import tomllib
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from support.daemon import Daemon
from support.log_samples import pi

pytestmark = pytest.mark.engine

WORDS = {"model": "tiny", "max_tokens": 12, "temperature": 0}


def apis(daemon: Daemon) -> tuple[openai.OpenAI, anthropic.Anthropic]:
    return (
        openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none"),
        anthropic.Anthropic(base_url=daemon.url, api_key="none"),
    )


def sampled_by(daemon: Daemon, *messages: dict[str, str]) -> tuple[list[int], list[int]]:
    """Prompt and answer as vLLM itself tells them, of the same question asked once more."""
    code, body = daemon.post("/v1/chat/completions", {**WORDS, "messages": messages, "return_token_ids": True})
    assert code == 200, body
    return body["prompt_token_ids"], body["choices"][0]["token_ids"]


def asked(words: str) -> dict[str, str]:
    return {"role": "user", "content": words}


def watched(daemon: Daemon) -> Path:
    return Path(tomllib.loads(daemon.config.read_text())["watch"][0]["path"])


def masked(daemon: Daemon, example: str) -> tuple[list[int], list[int]]:
    """Token ids of what comes before the first learned token, and of all that are learned."""
    shown = json.loads(daemon.ctl("example", "show", example, "--mask", "--json").stdout)["example"]
    assert shown["same"], "these are the tokens that the step learned"
    ids, mask = shown["ids"], shown["mask"]
    return ids[: mask.index(1)], [i for i, m in zip(ids, mask, strict=True) if m]


def all_learned(daemon: Daemon) -> None:
    daemon.wait(lambda s: not s["queue"]["pending"] and s["state"] == "serving", "all of it to be learned", 60)


def learned_from(daemon: Daemon, file: Path, count: int) -> list[dict[str, Any]]:
    """The examples of a log, after they were learned."""
    sql = (
        "SELECT body FROM events WHERE kind = 'example.accepted' AND body ->> '$.source' IN (SELECT key FROM events "
        f"WHERE kind = 'source.discovered' AND body ->> '$.path' LIKE '%/{file.name}') ORDER BY seq"
    )
    daemon.wait(lambda s: len(daemon.query(sql)) >= count, f"{count} examples of {file.name}", 60)
    all_learned(daemon)
    return [json.loads(body) for (body,) in daemon.query(sql)]


def test_a_session_of_real_clients_is_learned_with_the_tokens_that_were_sampled(running: Daemon) -> None:
    """Logs of pi and Claude Code, written from what the libraries of OpenAI and Anthropic returned."""
    chat, messages = apis(running)
    first = "what do they write?"
    one = chat.chat.completions.create(messages=[asked(first)], **WORDS)
    said = one.choices[0].message.content
    turns = [asked(first), {"role": "assistant", "content": said}, asked("and then?")]
    parts = list(chat.chat.completions.create(messages=turns, stream=True, **WORDS))
    told = "".join(part.choices[0].delta.content or "" for part in parts)
    more = [*turns, {"role": "assistant", "content": told}, asked("what else is there?")]
    other = chat.responses.create(model="tiny", input=more, max_output_tokens=12, temperature=0, store=False)
    claude = messages.messages.create(
        model="tiny",
        max_tokens=12,
        messages=[asked("who is it by?")],
        system="Be brief.",
        extra_body={"temperature": 0},
    )
    expected = {
        one.id: sampled_by(running, asked(first)),
        parts[0].id: sampled_by(running, *turns),
        other.id: sampled_by(running, *more),
        claude.id: sampled_by(running, {"role": "system", "content": "Be brief."}, asked("who is it by?")),
    }

    session = watched(running) / "pi-session.jsonl"
    lines = [
        pi.HEADER,
        pi.line("model_change", 1, 0, provider="vllm", modelId="tiny"),
        pi.message(2, 1, "user", first),
        pi.message(3, 2, "assistant", pi.text(said), model="tiny", responseId=one.id),
        pi.message(4, 3, "user", "and then?"),
        pi.message(5, 4, "assistant", pi.text(told), model="tiny", responseId=parts[0].id),
        pi.message(6, 5, "user", "what else is there?"),
        pi.message(7, 6, "assistant", pi.text(other.output_text), model="tiny", responseId=other.id),
        pi.message(8, 7, "user", "thank you"),  # begins the next turn
    ]
    session.write_bytes(b"".join(lines))
    log = watched(running) / "claude-session.jsonl"
    text = "".join(block.text for block in claude.content)
    records = [
        {"type": "user", "uuid": "u1", "parentUuid": None, "message": asked("who is it by?")},
        {"type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": {
            "id": claude.id, "role": "assistant", "model": claude.model, "content": [{"type": "text", "text": text}],
        }},
        {"type": "user", "uuid": "u3", "parentUuid": "u2", "message": asked("thank you")},
    ]  # fmt: skip
    common = {"sessionId": "s", "version": "2.1.1", "isSidechain": False}
    log.write_bytes(b"".join(json.dumps({**record, **common}).encode() + b"\n" for record in records))

    of_pi, of_claude = learned_from(running, session, 3), learned_from(running, log, 1)
    for accepted in of_pi + of_claude:
        ((response,), (kept,)) = accepted["origin"]["responses"], accepted["sampled"]
        prompt, answer = expected.pop(response)
        assert kept["response"] == response and kept["answer"] == answer and kept["prompt"] == prompt
        before, learned = masked(running, accepted["example"])
        assert learned == answer, "exactly what was sampled is learned, the end included"
        if response == claude.id:
            assert before != prompt, "the log does not have the system prompt"
        else:
            assert before == prompt[-len(before) :]
        (step,) = running.query(f"SELECT 1 FROM examples WHERE id = '{accepted['example']}' AND state = 'trained'")
        assert step == (1,)
    assert not expected
