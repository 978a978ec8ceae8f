"""TRL's `VLLMClient`, as its trainers call it: with the rights of this user, and with a key in its URL."""

from pathlib import Path
from typing import Any

import pytest
from support.foreign_clients import KEY, answer_of, needs

pytestmark = [pytest.mark.engine, needs("trl")]

PROMPTS = [[10, 11, 12, 13], [20, 21]]


def check(told: dict[str, Any]) -> None:
    """What every trainer of TRL relies on."""
    assert (told["model"], told["world_size"]) == ("tiny", 1) and told["transfer"] is not None
    sampled, greedy, scored = told["generated"], told["greedy"], told["scored"]
    assert sampled["prompt_ids"] == greedy["prompt_ids"] == PROMPTS and len(sampled["completion_ids"]) == 4
    for ids, logprobs, of in zip(
        sampled["completion_ids"], sampled["logprobs"], sampled["logprob_token_ids"], strict=True
    ):
        assert ids == [one[0] for one in of] and all(one[0] <= 0 for one in logprobs)
    for ids, of, values, again in zip(
        greedy["completion_ids"], scored["actual_token_ids"], greedy["logprobs"], scored["actual_logprobs"], strict=True
    ):
        assert len(ids) == 6 and ids == [one[0] for one in of]
        assert [one[0] for one in values] == pytest.approx([one[0] for one in again], abs=0.1)
    assert {len(one) for row in scored["logprobs"] for one in row} == {5}
    assert told["chat"]["completion_ids"][0]


def test_it_generates_and_scores_by_token_ids(served, tmp_path: Path) -> None:
    told = answer_of("trl_client", served.daemon.url, directory=tmp_path)
    check(told)
    assert told["joined"].startswith("NotImplementedError: Weight synchronization runs on vLLM's NCCL")
    assert "500" in told["finished"], "nothing was begun"


def test_the_key_may_be_the_password_of_its_url(routed, tmp_path: Path) -> None:
    told = answer_of("trl_client", routed.daemon.url.replace("//", f"//x:{KEY}@"), directory=tmp_path)
    check(told)
    assert told["joined"].startswith("NotImplementedError: ")
