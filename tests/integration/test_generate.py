"""POST /generate of the real engine: server classes of Atropos's package, and bodies as SGLang's clients send them."""

import importlib.util
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon

from apollod.wire.engine_terms import BEGUN

TALK = Path(__file__).parents[1] / "support" / "atropos_talk.py"
PROMPT = [5, 6, 7, 8]
pytestmark = pytest.mark.engine
installed = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("atroposlib", "pydantic_cli", "tenacity")),
    reason="there is no atroposlib with what it imports: run `make env`",
)


def talked(daemon: Daemon, kind: str) -> dict[str, Any]:
    command = [sys.executable, str(TALK), daemon.url, str(daemon.model), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert not done.returncode, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def figure(daemon: Daemon, name: str) -> float:
    with urllib.request.urlopen(f"{daemon.url}/metrics") as answer:
        (found,) = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", answer.read().decode(), re.M)
    return float(found)


def logprobs(daemon: Daemon, tokens: list[int]) -> list[float]:
    """Log-probability of each token after the first, as the engine computes it from the whole sequence."""
    body = {"model": "tiny", "prompt": tokens, "max_tokens": 1, "prompt_logprobs": 0}
    code, answer = daemon.post("/v1/completions", body)
    assert code == 200, answer
    each = answer["choices"][0]["prompt_logprobs"][1:]
    return [one[str(token)]["logprob"] for one, token in zip(each, tokens[1:], strict=True)]


def aligned(daemon: Daemon, tokens: list[int], mask: list[int], told: list[float]) -> int:
    """The number of sampled tokens, each of which has the log-probability of its own place."""
    assert len(tokens) == len(mask) == len(told)
    sampled = [place for place, one in enumerate(mask) if one != -100]
    assert all(mask[place] == tokens[place] for place in sampled)
    assert all(told[place] == 1.0 for place in range(len(tokens)) if place not in sampled)
    found = logprobs(daemon, tokens)
    apart = [abs(told[place] - found[place - 1]) for place in sampled]
    assert sum(apart) / len(apart) < 0.05, apart
    return len(sampled)


@installed
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_the_packages_own_servers_get_each_tokens_log_probability(running: Daemon, kind: str) -> None:
    begun = figure(running, BEGUN)
    told = talked(running, kind)
    assert figure(running, BEGUN) - begun == 1.0, "its plain completion alone is a user's"
    assert len(told["several"]) == 3 and told["healthy"] and len(told["plain"]) == 2
    for node in told["several"]:
        count = aligned(running, node["tokens"], node["masked_tokens"], node["logprobs"])
        assert count == 12 or node["metadata"]["finish_reason"] == "stop"
    for node in told["turns"]:
        aligned(running, node["tokens"], node["masked_tokens"], node["logprobs"])
    if kind == "vllm":
        scored, tokens = told["scored"], told["several"][0]["tokens"]
        assert scored["prompt_tokens"] == tokens
        ids = scored["prompt_topk_token_ids"]
        assert not ids[0] and all(token in one for token, one in zip(tokens[1:], ids[1:], strict=True))


def test_each_kind_of_body_has_its_own_kind_of_answer(running: Daemon) -> None:
    code, told = running.post("/generate", {
        "prompt": {"prompt_token_ids": PROMPT}, "logprobs": 2, "n": 2, "max_tokens": 5, "temperature": 1.0,
        "stop": None, "ignore_eos": True,
    })  # fmt: skip
    assert code == 200, told
    assert told["finish_reasons"] == ["length"] * 2 and told["prompt_token_ids"] == PROMPT
    for ids, each in zip(told["token_ids"], told["logprobs"], strict=True):
        assert [int(next(iter(one[0]))) for one in each] == ids, "the sampled token comes first"
        assert len(ids) == 5 and all(len(one[0]) in (2, 3) for one in each)
        aligned(running, PROMPT + ids, [-100] * 4 + ids, [1.0] * 4 + [next(iter(one[0].values())) for one in each])

    asked = {"sampling_params": {"max_new_tokens": 3, "ignore_eos": True}, "return_logprob": True, "rid": "x"}
    code, told = running.post("/generate", {"input_ids": PROMPT, **asked, "return_text_in_logprobs": False})
    assert code == 200, told
    meta = told["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 3}
    assert (meta["prompt_tokens"], meta["completion_tokens"], len(meta["output_token_logprobs"])) == (4, 3, 3)
    assert [one[1] for one in meta["output_token_logprobs"]] == told["output_ids"]
    assert meta["weight_version"] == str(running.status()["weights"]["version"])
    code, told = running.post(
        "/generate", {"text": ["word", "a word"], "sampling_params": {"n": 2, "max_new_tokens": 2}}
    )
    assert code == 200 and len(told) == 4 and "output_token_logprobs" not in told[0]["meta_info"]
    sampled = running.post(
        "/generate", {"input_ids": PROMPT, "sampling_params": {"stop_token_ids": told[0]["output_ids"]}}
    )
    assert sampled[0] == 200


def test_an_answer_says_which_weights_gave_it_and_is_not_kept_for_feedback(running: Daemon) -> None:
    asked = urllib.request.Request(
        f"{running.url}/generate", json.dumps({"input_ids": PROMPT}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked) as answer:
        assert answer.headers["X-Apollod-Weights-Version"] == str(running.status()["weights"]["version"])
        name = json.loads(answer.read())["meta_info"]["id"].removesuffix("-0")
    assert running.post("/feedback", {"response_id": name, "rating": "good"})[0] == 404
    _, plain = running.post("/v1/completions", {"model": "tiny", "prompt": PROMPT})
    assert running.get(f"/feedback/{plain['id']}")[0] == 200, "a user's is"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not a JSON object"),
        (b"[]", "not a JSON object"),
        ({}, "neither prompt nor input_ids"),
        ({"prompt": PROMPT, "stream": True}, "does not stream"),
        ({"prompt": PROMPT, "best_of": 3}, "does not know best_of"),
        ({"input_ids": PROMPT, "sampling_params": {"regex": "a"}}, "does not know regex"),
        ({"input_ids": PROMPT, "sampling_params": [{}, {}]}, "no object"),
        ({"input_ids": PROMPT, "top_logprobs_num": 3}, "has no top_logprobs_num"),
        ({"prompt": {}}, ""),
        ({"prompt": []}, ""),
        ({"input_ids": [1 << 40]}, ""),
        ({"input_ids": [-1]}, ""),
        ({"input_ids": PROMPT * 1000}, ""),
        ({"input_ids": PROMPT, "sampling_params": {"temperature": -1}}, ""),
        ({"input_ids": PROMPT, "sampling_params": {"n": 1 << 40}}, ""),
        ({"prompt": PROMPT, "logprobs": 1 << 40}, ""),
        ({"prompt": "x", "max_tokens": "many"}, ""),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_words(running: Daemon, body: Any, said: str) -> None:
    code, told = running.post("/generate", body)
    assert code == 400 and said in str(told["error"]), told
    assert "Traceback" not in str(told)


def test_a_client_that_leaves_ends_its_request(running: Daemon) -> None:
    """Eight answers of 450 tokens take several seconds."""
    body = json.dumps({"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 450, "ignore_eos": True, "n": 8}})
    before = figure(running, "vllm:generation_tokens_total")
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(
            f"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        until(lambda: figure(running, "vllm:num_requests_running") > 0)
    until(lambda: not figure(running, "vllm:num_requests_running"))
    assert figure(running, "vllm:generation_tokens_total") - before < 8 * 400


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_given_texts_are_scored_token_by_token(running: Daemon) -> None:
    """As vLLM's own prompt log-probabilities; of several texts at once, from a token on, or of a text in words."""
    code, told = running.post("/score", {"input_ids": [PROMPT, [9, 8, 7]]})
    assert code == 200, told
    assert re.fullmatch(r"\d+(-\d+)?", told["weight_version"]) and len(told["scores"]) == 2
    first = told["scores"][0]
    assert first["token_ids"] == PROMPT[1:] and first["logprobs"] == pytest.approx(logprobs(running, PROMPT), abs=0.02)
    assert first["sum"] == pytest.approx(sum(first["logprobs"]))
    code, later = running.post("/score", {"input_ids": PROMPT, "start": 3})
    assert later["scores"][0]["token_ids"] == PROMPT[3:]
    assert later["scores"][0]["logprobs"] == pytest.approx(first["logprobs"][2:], abs=0.02)
    code, words = running.post("/score", {"text": "hello there, what is it?"})
    assert code == 200 and len(words["scores"][0]["logprobs"]) == len(words["scores"][0]["token_ids"]) > 1
    for body, why in (
        ({}, "either input_ids or text"), ({"input_ids": []}, "a text is empty"),
        ({"input_ids": [[]]}, "a text is empty"), ({"input_ids": ["a"]}, "not a request"),
        ({"input_ids": PROMPT, "start": 4}, "start is 4, and a text has 4 tokens"),
        ({"text": "a", "stream": True}, "not a request"), ({"input_ids": PROMPT, "start": 0}, "not a request"),
    ):  # fmt: skip
        code, refused = running.post("/score", body)
        assert code == 400 and why in refused["error"], (body, refused)
    code, refused = running.post("/score", {"input_ids": [[999_999, 1]]})
    assert code == 400, refused
