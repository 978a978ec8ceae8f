"""What is read from vLLM's /metrics. The sample is a real answer of vLLM 0.32, shortened."""

import re
from pathlib import Path

import pytest

from apollod.adapters.llm.engine_counters import FINISHED, RUNNING, WAITING, Counters, read_counters
from apollod.errors import LlmNonsense

REAL = (Path(__file__).parents[2] / "support" / "vllm_metrics.txt").read_bytes()


def with_values(text: bytes, **values: str) -> bytes:
    """The sample with other values of a metric, in all its lines."""
    for name, value in values.items():
        lines = text.splitlines(keepends=True)
        text = b"".join(
            line.rpartition(b" ")[0] + f" {value}\n".encode() if line.startswith(f"vllm:{name}{{".encode()) else line
            for line in lines
        )
    return text


def test_a_real_answer() -> None:
    assert read_counters(REAL) == Counters(running=0, waiting=0, finished=1)


def test_every_line_of_a_counter_counts_and_none_of_one_with_a_longer_name() -> None:
    text = with_values(
        REAL, num_requests_running="3.0", num_requests_waiting="2.0", num_requests_waiting_by_reason="7.0",
        request_success_total="1e2",
    )  # fmt: skip
    assert read_counters(text) == Counters(3, 2, 500)
    assert read_counters(text + text.replace(b'engine="0"', b'engine="1"')) == Counters(6, 4, 1000)


@pytest.mark.parametrize("labels", ["", "{}", '{model_name="a } 9 \\" b{"}', '{model_name="\u00fc",engine="0",}'])
@pytest.mark.parametrize("behind", ["", " 1395066363000", "\r"])
def test_labels_say_what_they_like(labels: str, behind: str) -> None:
    text = "".join(f"{name}{labels} 4.0{behind}\n" for name in (RUNNING, WAITING, FINISHED))
    assert read_counters(text.encode()) == Counters(4, 4, 4)


def test_without_a_count_of_finished_requests_the_gauges_are_known() -> None:
    lines = [line for line in REAL.splitlines() if FINISHED.encode() not in line]
    assert read_counters(b"\n".join(lines)) == Counters(0, 0, None)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"<html>", b"vllm:num_requests_running 1\n"])
def test_a_missing_gauge_is_said_with_what_to_do(text: bytes) -> None:
    with pytest.raises(LlmNonsense, match="no vllm:num_requests") as raised:
        read_counters(text)
    assert "--disable-log-stats" in raised.value.hint


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "many"])
def test_a_gauge_that_is_no_number_of_requests(value: str) -> None:
    with pytest.raises(LlmNonsense, match=f"vllm:num_requests_running is {re.escape(value)}"):
        read_counters(with_values(REAL, num_requests_running=value))
