"""Ratings in a daemon whose engine kept answers in an earlier life: what is learned of them is run again to the bit."""

import json
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.invariants import check_replay, check_stopped

from apollod.adapters.answer_store import SECOND_NS, Answer, AnswerWriter
from apollod.adapters.system.clock import now_ns
from apollod.core import events as ev
from apollod.demo.tiny_model import make_tokenizer
from apollod.wire import messages as msg

PROMPT = "<|im_start|>user\nwhat is it called?<|im_end|>\n<|im_start|>assistant\n"
base = make_tokenizer()

DAY_S = 86400  # the default of keep_s


def kept(response: str, answer: str) -> Answer:
    """Letter by letter, as no tokenizer would write it."""
    ids = array("I", [token for letter in answer for token in base.encode(letter)])
    ids.extend(base.encode("<|im_end|>"))
    return Answer(response, 0, now_ns(), "0", "stop", ids[-1], array("I", base.encode(PROMPT)), ids, PROMPT, answer)


@pytest.fixture
def daemon(tmp_path: Path, tiny_model: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path, tiny_model, '[capture]\nmode = "feedback"\n')
    (tmp_path / "state").mkdir()
    writer = AnswerWriter(tmp_path / "state" / "capture.db", 1 << 20, 1e6)
    old = kept("chatcmpl-old", "a telling sentence.")._replace(at_ns=now_ns() - (DAY_S - 2) * SECOND_NS)
    writer.put([kept("chatcmpl-a", "it is miso."), kept("chatcmpl-b", "no idea."), old], now_ns())
    writer.close()
    yield made.start()
    made.end()


def test_what_was_rated_after_a_restart_is_learned_and_replays_to_the_same_bits(daemon: Daemon) -> None:
    daemon.wait_ready()
    good = daemon.request(msg.FeedbackRequest("chatcmpl-a", "good"))
    better = daemon.request(msg.FeedbackRequest("chatcmpl-b", "bad", "it is miso paste.", "no"))
    status = daemon.wait_learned(2)
    status = daemon.wait(lambda s: s["capture"]["answers"] == 2, "the answer of a day ago to be dropped", 180)
    assert b"telling" not in (daemon.root / "state" / "capture.db").read_bytes()
    assert (status["capture"], status["step"]) == ({"mode": "feedback", "answers": 2, "rated": 2}, 2)
    rows = daemon.query("SELECT key, body FROM events WHERE kind = 'example.encoded' ORDER BY seq")
    letters = len(kept("", "it is miso.").answer_ids)
    assert [(key, json.loads(body)["targets"]) for key, body in rows] == [
        (good["example"], letters), (better["example"], len(base.encode("it is miso paste.")) + 1),
    ]  # fmt: skip
    assert daemon.query("SELECT response, rating, holds FROM feedback ORDER BY seq") == [
        ("chatcmpl-a", "good", 1), ("chatcmpl-b", "bad", 1),
    ]  # fmt: skip
    daemon.stop()
    assert sum(isinstance(event, ev.FeedbackGiven) for event in check_stopped(daemon)) == 2
    assert check_replay(daemon) == 2
