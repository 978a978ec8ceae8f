"""What is read of users' requests from /metrics. The sample is a real answer of vLLM 0.32, shortened."""

import re
from pathlib import Path

import pytest

from apollod.adapters.llm.engine_watch import UserRequests, read_user_requests
from apollod.errors import LlmNonsense
from apollod.wire.engine_terms import BEGUN, ENDED

REAL = (Path(__file__).parents[2] / "support" / "vllm_metrics.txt").read_bytes()


def counted(begun: str, ended: str) -> bytes:
    created = BEGUN.removesuffix("total") + "created"
    return f"# TYPE {BEGUN} counter\n{BEGUN} {begun}\n{created} 1.7e9\n{ENDED} {ended}\n".encode()


def test_beside_all_that_vllm_says() -> None:
    assert read_user_requests(REAL + counted("3.0", "1e0")) == UserRequests(3, 1)
    twice = counted("3.0", "2.0") + counted("4.0", "4.0")
    assert read_user_requests(twice) == UserRequests(7, 6), "one of each API process"


@pytest.mark.parametrize("labels", ["", "{}", '{model_name="a } 9 \\" b{"}', '{model_name="\u00fc",engine="0",}'])
@pytest.mark.parametrize("behind", ["", " 1395066363000", "\r"])
def test_labels_say_what_they_like(labels: str, behind: str) -> None:
    text = "".join(f"{name}{labels} 4.0{behind}\n" for name in (BEGUN, ENDED))
    assert read_user_requests(text.encode()) == UserRequests(4, 4)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"<html>", REAL, f"{BEGUN} 1\n".encode()])
def test_a_missing_count_is_said_with_what_to_do(text: bytes) -> None:
    with pytest.raises(LlmNonsense, match="no apollod_user_requests_") as raised:
        read_user_requests(text)
    assert "one version of apollod" in raised.value.hint


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "many"])
def test_a_count_that_is_no_number_of_requests(value: str) -> None:
    with pytest.raises(LlmNonsense, match=f"{BEGUN} is {re.escape(value)}"):
        read_user_requests(counted(value, "0"))
