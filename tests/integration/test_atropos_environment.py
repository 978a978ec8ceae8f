"""A daemon that learns from a real environment process of Atropos, through the real service of its package: either of
them may end and begin again."""

import importlib.util
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import VLLM, Daemon

from apollod.adapters.journal import journal_reader
from apollod.core import events as ev
from apollod.demo.rewards import PACKAGES, Atropos

ENVIRONMENT = '[[environment]]\nname = "naming"\nkind = "atropos"\nurl = "{url}"\ngroup = 4\nterms = {{ kl = 0.05 }}\n'
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in PACKAGES),
        reason="there is no atroposlib with what its environments import: run `make env`",
    ),
]


@pytest.fixture
def atropos(tmp_path: Path) -> Iterator[Atropos]:
    with Atropos(tmp_path) as made:
        yield made


@pytest.fixture
def daemon(tmp_path: Path, tiny_model: Path, atropos: Atropos) -> Iterator[Daemon]:
    made = Daemon(tmp_path, tiny_model, ENVIRONMENT.format(url=atropos.url), VLLM)
    made.config.write_text(made.config.read_text().replace("lr = 1e-3", "lr = 1e-5"))
    with made.serving():
        yield made


def more_steps(daemon: Daemon, atropos: Atropos) -> None:
    """With an environment that begins anew, whose scores are drawn by lot: a random model names nothing."""
    before = daemon.status()["step"]
    settings = ("--env.by_chance", "True", "--env.group_size", "4", "--env.max_token_length", "12")
    atropos.start_environment(daemon.url, daemon.model, "tiny", *settings)
    daemon.wait(lambda s: s["step"] >= before + 2, "two steps", 240.0, 0.2, look=lambda _: atropos.check())


def test_the_daemon_learns_on_whoever_begins_again(daemon: Daemon, atropos: Atropos) -> None:
    more_steps(daemon, atropos)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
    assert daemon.post("/v1/chat/completions", body)[0] == 200, "others are served meanwhile"
    atropos.end("service")
    atropos.start_service()  # it has forgotten everything
    atropos.end("environment")
    more_steps(daemon, atropos)

    status = daemon.status()
    assert status["environments"][0]["state"] != "paused" and "Traceback" not in daemon.log()
    daemon.stop()
    events = [one.event for one, _ in journal_reader.recorded(daemon.journal)]
    steps = [one for one in events if isinstance(one, ev.StepCompleted)]
    assert len(steps) >= 4 and all(0.8 < one.metrics["ratio"] < 1.2 for one in steps), steps
    groups = [one for one in events if isinstance(one, ev.GroupSampled)]
    encoded = [one for one in events if isinstance(one, ev.ExampleEncoded)]
    assert encoded and all(one.reference and one.weights == 0 for one in encoded), "kl is to the untrained weights"
    assert all(len(one.scores) == 4 for one in groups)
    done = subprocess.run(
        daemon.command("replay", "--json"), capture_output=True, text=True, check=True, env=daemon.environment()
    )
    assert json.loads(done.stdout)["fingerprint"] == steps[-1].fingerprint
