"""TRL's `GRPOTrainer`, unmodified, teaches a model that apollod serves: it samples there and writes the weights there
after every optimizer step, and what the daemon answers to held-out prompts gets better. A rollback takes it back."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.daemon import VLLM, Daemon
from support.foreign_clients import answer_of, needs

from apollod.demo import naming
from apollod.demo.rewards import User

pytestmark = [pytest.mark.engine, needs("trl")]

STEPS, SEED = 40, 0
PROMPTS, ANSWERS, TOKENS = 30, 8, 24
"""held-out prompts, sampled answers to each, and tokens of an answer"""
LEAST_AFTER = 0.5
"""docs/benchmarks/2026-11-29-foreign-grpo.md has the runs that it comes from"""
AGAIN = 0.02
APART = 0.1
"""nats between the trainer's and the served log-probabilities, as apollod's own steps allow"""


class Measured(NamedTuple):
    """Mean score of sampled answers to held-out prompts, and all the answers."""

    score: float
    answers: list[str]


def measured(daemon: Daemon) -> Measured:
    """What the daemon, not the trainer, answers to prompts that address people whom no trained prompt addresses."""
    scores, answers = list[float](), list[str]()
    for number in range(naming.HELD_OUT, naming.HELD_OUT + PROMPTS):
        body = {
            "model": "tiny", "messages": [{"role": "user", "content": naming.prompt(number)}], "n": ANSWERS,
            "temperature": 1.0, "max_tokens": TOKENS, "seed": number,
        }  # fmt: skip
        status, answer = daemon.post("/v1/chat/completions", body)
        assert status == 200, answer
        said = [str(one["message"]["content"] or "") for one in answer["choices"]]
        answers += said
        scores += [naming.score(number, one) for one in said]
    return Measured(sum(scores) / len(scores), answers)


def fingerprint(daemon: Daemon) -> str:
    """That of the weights which are served now."""
    return str(daemon.status()["weights"]["fingerprint"])


@pytest.fixture
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that serves the demo's pretrained model."""
    model = tmp_path_factory.mktemp("model") / "demo"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-m", "apollod.demo.tiny_model", str(model)], env=environment, check=True)
    daemon = Daemon(tmp_path_factory.mktemp("g"), model, "[control]\nenabled = true\n", VLLM)
    with daemon.serving():
        yield daemon


def test_it_raises_a_held_out_score_and_a_rollback_takes_it_back(
    demo: Daemon, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    first, before = fingerprint(demo), measured(demo)
    asked = (demo.url, str(demo.model), str(STEPS), str(SEED), "scored")
    user = User(demo, "tiny")
    told = answer_of("trl_grpo", *asked, directory=tmp_path)
    others = user.stop()
    after, steps = measured(demo), told["steps"]
    for name, figure in (("before", before.score), ("after", after.score), ("others", others), ("client", told)):
        record_property(name, figure)  # `-o junit_family=xunit1 --junitxml=FILE` has them

    assert told["first"] == first and len({first, *(one["sent"] for one in steps)}) == STEPS + 1
    assert [one["served"] for one in steps] == [one["sent"] for one in steps]
    assert max(one["apart"] for one in steps) < APART
    assert fingerprint(demo) == steps[-1]["sent"]
    recorded = demo.query('SELECT state, step, label, fingerprint FROM updates ORDER BY "update"')
    assert recorded == [("committed", step, f"trl-{step}", one["sent"]) for step, one in enumerate(steps, 1)]
    assert before.score < LEAST_AFTER / 2 and after.score > LEAST_AFTER, (before.score, after.score)

    assert others > 10, "another user was not served meanwhile"

    demo.ctl("rollback", "--to", "0")
    assert fingerprint(demo) == first
    assert measured(demo).score == pytest.approx(before.score, abs=AGAIN)
