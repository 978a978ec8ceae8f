"""The engine's own tokens: what real clients were answered is learned token by token, from logs and by ratings."""

import json
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon
from support.log_samples import pi

from apollod.adapters.journal import journal_reader
from apollod.cli.control.examples import example_text
from apollod.cli.main import main
from apollod.trainer.objectives.encoding import load_tokenizer
from apollod.trainer.objectives.objective import SFT
from apollod.trainer.objectives.table import encoded
from apollod.trainer.token_texts import shown
from apollod.wire.records import with_sampled

pytestmark = pytest.mark.engine

WORDS = {"model": "tiny", "max_tokens": 12, "temperature": 0}


def apis(daemon: Daemon) -> tuple[Any, Any]:
    """Clients of OpenAI and Anthropic, imported only here: every worker collects this file, and none runs it."""
    import anthropic
    import openai

    return (
        openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none"),
        anthropic.Anthropic(base_url=daemon.url, api_key="none"),
    )


def prompt_of(daemon: Daemon, *messages: dict[str, str]) -> list[int]:
    """The prompt as vLLM itself tells it, of the same question asked once more. The answer may be another one then:
    a cached prompt differs in last bits, which decide between two tokens that are as probable."""
    code, body = daemon.post("/v1/chat/completions", {**WORDS, "messages": messages, "return_token_ids": True})
    assert code == 200, body
    return list(body["prompt_token_ids"])


def asked(words: str) -> dict[str, str]:
    return {"role": "user", "content": words}


def watched(daemon: Daemon) -> Path:
    return Path(tomllib.loads(daemon.config.read_text())["watch"][0]["path"])


def masked(daemon: Daemon, example: str) -> tuple[list[int], list[int]]:
    """Token ids of what comes before the first learned token, and of all that are learned, as the step learned them."""
    accepted = journal_reader.accepted(daemon.journal, example)
    ((digest,),) = daemon.query(
        f"SELECT body ->> '$.digest' FROM events WHERE kind = 'example.encoded' AND key = '{example}'"
    )
    assert accepted is not None
    record = with_sampled(bytes(accepted.record), accepted.sampled)
    tokens = encoded(load_tokenizer(str(daemon.model)), record, SFT, 256)
    assert tokens.digest() == digest
    first = tokens.mask.index(True)
    return tokens.ids[:first], [i for i, m in zip(tokens.ids, tokens.mask, strict=True) if m]


def all_learned(daemon: Daemon) -> None:
    daemon.wait(lambda s: not s["queue"]["pending"] and s["state"] == "serving", "all of it to be learned", 180)


def wait_kept(daemon: Daemon, response: str) -> None:
    """Wait until the engine has stored an answer, which it does after the client has it."""
    daemon.wait(lambda s: daemon.get(f"/feedback/{response}")[0] == 200, f"{response} to be kept", 180)


def learned_from(daemon: Daemon, file: Path, count: int) -> list[dict[str, Any]]:
    """The examples of a log, after they were learned."""
    sql = (
        "SELECT body FROM events WHERE kind = 'example.accepted' AND body ->> '$.source' IN (SELECT key FROM events "
        f"WHERE kind = 'source.discovered' AND body ->> '$.path' LIKE '%/{file.name}') ORDER BY seq"
    )
    daemon.wait(lambda s: len(daemon.query(sql)) >= count, f"{count} examples of {file.name}", 180)
    all_learned(daemon)
    return [json.loads(body) for (body,) in daemon.query(sql)]


def test_a_session_of_real_clients_is_learned_with_the_tokens_that_were_sampled(running: Daemon) -> None:
    """Logs of pi and Claude Code, written from what the libraries of OpenAI and Anthropic returned."""
    chat, messages = apis(running)
    first = "what do they write?"
    one = chat.chat.completions.create(messages=[asked(first)], extra_body={"return_token_ids": True}, **WORDS)
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
    text = "".join(block.text for block in claude.content)
    expected = {
        one.id: (prompt_of(running, asked(first)), said),
        parts[0].id: (prompt_of(running, *turns), told),
        other.id: (prompt_of(running, *more), other.output_text),
        claude.id: (prompt_of(running, {"role": "system", "content": "Be brief."}, asked("who is it by?")), text),
    }
    for id_ in expected:
        wait_kept(running, id_)

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
    records = [
        {"type": "user", "uuid": "u1", "parentUuid": None, "message": asked("who is it by?")},
        {"type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": {
            "id": claude.id, "role": "assistant", "model": claude.model, "content": [{"type": "text", "text": text}],
        }},
        {"type": "user", "uuid": "u3", "parentUuid": "u2", "message": asked("thank you")},
    ]  # fmt: skip
    common = {"sessionId": "s", "version": "2.1.1", "isSidechain": False}
    log.write_bytes(b"".join(json.dumps({**record, **common}).encode() + b"\n" for record in records))

    tokenizer = load_tokenizer(str(running.model))
    of_pi, of_claude = learned_from(running, session, 3), learned_from(running, log, 1)
    for accepted in of_pi + of_claude:
        ((response,), (kept,)) = accepted["origin"]["responses"], accepted["sampled"]
        prompt, answered = expected.pop(response)
        assert kept["response"] == response and kept["prompt"] == prompt
        if response == one.id:
            assert kept["answer"] == one.choices[0].model_extra["token_ids"]
        assert tokenizer.decode(kept["answer"], skip_special_tokens=True) == answered, "as the client was answered"
        before, learned = masked(running, accepted["example"])
        assert learned == kept["answer"], "exactly what was sampled is learned, the end included"
        if response == claude.id:
            assert before != prompt, "the log does not have the system prompt"
        else:
            assert before == prompt[-len(before) :]
        (step,) = running.query(f"SELECT 1 FROM examples WHERE id = '{accepted['example']}' AND state = 'trained'")
        assert step == (1,)
    assert not expected


def test_every_endpoint_is_kept_streamed_or_not(running: Daemon) -> None:
    chat, messages = apis(running)
    ids = []
    for stream in (False, True):
        words = {**WORDS, "stream": stream}
        one = chat.chat.completions.create(messages=[asked("stream?")], **words)
        two = chat.completions.create(prompt=["one", "two"], n=2, **{**words, "temperature": 1})
        ids += (
            [(one.id, [0]), (two.id, [0, 1, 2, 3])]
            if not stream
            else [(next(iter(each)).id, None) for each in (one, two)]
        )
        if stream:
            for each in (one, two):
                list(each)
    with messages.messages.stream(model="tiny", max_tokens=5, messages=[asked("stream?")]) as told:
        ids.append((told.get_final_message().id, [0]))
    events = list(chat.responses.create(model="tiny", input="stream?", max_output_tokens=5, stream=True, store=False))
    ids.append((events[-1].response.id, [0]))
    for id_, choices in ids:
        wait_kept(running, id_)
        _, body = running.get(f"/feedback/{id_}")
        assert body["rating"] is None and body["choices"] == (choices or body["choices"])
    assert running.status()["capture"]["answers"] >= len(ids)
    assert "capture     all, " in running.ctl("status").stdout


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_an_id_that_clients_choose_names_nobodys_answer(running: Daemon, path: str) -> None:
    """Two clients with the same X-Request-Id and `request_id`, one of them twice: three answers, each under an id of
    its own, and none under theirs."""
    chosen = "resp_session1" if path.endswith("responses") else "session1"
    ids = []
    for client in ("one", "two", "two"):
        words = {
            "/v1/chat/completions": {**WORDS, "messages": [asked(client)]},
            "/v1/completions": {**WORDS, "prompt": client},
            "/v1/responses": {"model": "tiny", "input": client, "max_output_tokens": 12, "store": False},
        }[path]
        body = json.dumps({**words, "request_id": chosen}).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": "session1"}
        request = urllib.request.Request(running.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            ids.append(json.load(answer)["id"])
    assert len(set(ids)) == 3 and not any("session1" in each for each in ids)
    for id_ in ids:
        wait_kept(running, id_)
    for id_ in ("session1", "resp_session1", "chatcmpl-session1", "cmpl-session1"):
        assert running.get(f"/feedback/{id_}")[0] == 404


def test_a_good_answer_is_learned_exactly_as_it_was_sampled(
    running: Daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {**WORDS, "messages": [asked("was it good?")], "n": 2, "temperature": 1, "seed": 5, "return_token_ids": True}
    _, answer = running.post("/v1/chat/completions", body)
    rated = {"response_id": answer["id"], "rating": "good"}
    code, told = running.post("/feedback", rated)
    assert code == 400 and "0, 1" in told["hint"], "which of the two?"
    code, told = running.post("/feedback", {**rated, "choice": 1, "comment": "just so"})
    assert (code, told["recorded"], told["rating"]) == (200, True, "good")
    all_learned(running)
    before, learned = masked(running, told["example"])
    assert (before, learned) == (answer["prompt_token_ids"], answer["choices"][1]["token_ids"])
    monkeypatch.setattr(example_text, "tokens_of", shown)  # without a process of its own
    config = ["--config", str(running.config)]
    assert main(["ctl", "example", "show", told["example"], "--mask", "--json", *config]) == 0
    seen = json.loads(capsys.readouterr().out)["example"]
    assert seen["same"] and seen["ids"] == before + learned, "and people see these very tokens"
    sql = f"SELECT body ->> '$.tier' FROM events WHERE kind = 'example.accepted' AND key = '{told['example']}'"
    assert running.query(sql) == [("direct",)]
    again = running.post("/feedback", {**rated, "choice": 1, "comment": "just so"})[1]
    assert again["recorded"] is False and again["seq"] == told["seq"] and again["state"] == "trained"
    _, kept = running.get(f"/feedback/{answer['id']}?choice=1")
    assert (kept["rating"], kept["comment"], kept["by"], kept["example"]) == (
        "good", "just so", "http", told["example"],
    )  # fmt: skip


def test_a_correction_is_learned_after_the_tokens_that_were_asked(running: Daemon, tmp_path: Path) -> None:
    body = {**WORDS, "messages": [asked("was it bad?")], "return_token_ids": True}
    _, answer = running.post("/v1/chat/completions", body)
    (tmp_path / "better").write_text("it was better.\n")
    said = running.ctl(
        "feedback", answer["id"], "bad", "--fix", str(tmp_path / "better"), "--comment", "sk-no-secret", "--json"
    )
    told = json.loads(said.stdout)
    all_learned(running)
    before, learned = masked(running, told["example"])
    assert before == answer["prompt_token_ids"]
    ((pair,),) = running.query(f"SELECT body FROM events WHERE seq = {told['seq']}")
    given = json.loads(pair)
    assert given["original"]["answer"] == answer["choices"][0]["token_ids"] and given["correction"] == "it was better."
    _, tokens = running.post("/tokenize", {"model": "tiny", "prompt": "it was better.", "add_special_tokens": False})
    assert learned[:-1] == tokens["tokens"]
    assert given["original"].get("final", learned[-1]) == learned[-1], "it ends as the engine ends"
    code, told = running.post("/feedback", {"response_id": answer["id"], "rating": "good"})
    assert code == 200 and told["replaces"] == json.loads(said.stdout)["seq"]
    all_learned(running)
    shown = running.ctl("feedback", answer["id"]).stdout
    assert " is good; example " in shown and "(trained)" in shown


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"response_id": "chatcmpl-never", "rating": "good"}, 404, "no answer chatcmpl-never is kept"),
        ({"response_id": "?", "rating": "good", "correction": "x"}, 400, "needs no correction"),
        ({"response_id": "?", "rating": "bad", "correction": " "}, 400, "is empty"),
        ({"response_id": "?", "rating": "bad", "choice": 7}, 404, "no choice 7"),
    ],
)
def test_what_cannot_be_rated_is_said_with_what_to_do(
    running: Daemon, body: dict[str, Any], code: int, words: str
) -> None:
    if body["response_id"] == "?":
        body["response_id"] = running.post("/v1/completions", {**WORDS, "prompt": "rate it"})[1]["id"]
    found, told = running.post("/feedback", body)
    assert found == code and words in told["error"] and told["hint"]
    assert running.get("/feedback/chatcmpl-never")[0] == 404
