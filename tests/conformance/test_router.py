"""The router of SGLang in front of a daemon with a key, which began before the daemon's engine."""

import time
from typing import Any

import pytest
import requests
from support.foreign_clients import KEY, needs

pytestmark = [pytest.mark.engine, needs("sglang_router")]

ASKED = {
    "input_ids": [10, 11, 12, 13], "return_logprob": True,
    "sampling_params": {"max_new_tokens": 6, "temperature": 0, "ignore_eos": True},
}  # fmt: skip
REGISTERED_S = 60.0


def asked(url: str, body: dict[str, Any], key: str = KEY) -> requests.Response:
    return requests.post(f"{url}/generate", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=60)


def routed_answer(url: str, log) -> dict[str, Any]:
    """The first answer through the router, which looks for its workers now and then."""
    deadline = time.monotonic() + REGISTERED_S
    while (answer := asked(url, ASKED)).status_code != 200:
        assert time.monotonic() < deadline, f"{answer.status_code} {answer.text}\n{log.read_text()[-4000:]}"
        time.sleep(0.5)
    return answer.json()


def test_token_ids_and_log_probabilities_come_through_the_router(routed) -> None:
    through = routed_answer(routed.router, routed.log)
    direct = asked(routed.daemon.url, ASKED).json()
    ids, logprobs = through["output_ids"], through["meta_info"]["output_token_logprobs"]
    assert len(ids) == 6 and [one[1] for one in logprobs] == ids
    assert ids == direct["output_ids"] and all(one[0] < 0 for one in logprobs)
    assert logprobs == direct["meta_info"]["output_token_logprobs"]
    assert through["meta_info"]["weight_version"] == "0"
    assert requests.post(f"{routed.router}/flush_cache", headers={"Authorization": f"Bearer {KEY}"}, timeout=60).ok
