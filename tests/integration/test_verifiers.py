"""Environments of the verifiers library: the real package, in the venv that `make verifiers` makes or the interpreter
that VERIFIERS_PYTHON names, with a taskset that has several turns; against an engine that is played, and real vLLM."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import llm_server as behave
from support.daemon import VLLM, Daemon
from support.llm_server import serving

from apollod.adapters.environments import python_environment
from apollod.adapters.environments.python_environment import Sampled, VerifiersEnvironment
from apollod.adapters.journal import blobs, journal_reader
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.core import events as ev
from apollod.errors import ConfigError, EnvironmentFailed
from apollod.supervisor.config import load_config
from apollod.supervisor.executor.environment_effects import environments_of
from apollod.wire.comparisons import decode_learned
from apollod.wire.engine_terms import BEGUN
from apollod.wire.rollouts import Group, check, read_group

TALK = Path(__file__).parents[1] / "support" / "verifiers_talk.py"
PYTHON = os.environ.get("VERIFIERS_PYTHON", f"{sys.prefix}-verifiers/bin/python")
NOT_INSTALLED = (
    "there is no verifiers in a venv of its own: run `make verifiers`, or name its Python in VERIFIERS_PYTHON"
)

installed = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason=NOT_INSTALLED)
slow = pytest.mark.slow


def environment_of(model: Path, port: int, settings: str = "{}", **keys: str) -> VerifiersEnvironment:
    """The environment of the taskset for tests."""
    given = {"kind": "verifiers", "entry": str(TALK), "python": PYTHON, "group": "4", "max_tokens": "12"} | keys
    config = load_config(
        None,
        [
            f"model.path={model}", f"engine.port={port}", "engine.served_name=tiny", "quality.every_steps=0",
            'engine.args=["--scheduling-policy", "fcfs"]', f"environment.talk.settings={settings}",
            *(f"environment.talk.{key}={value}" for key, value in given.items()),
        ],
        {},
    )  # fmt: skip
    found = environments_of(config)["talk"]
    assert isinstance(found, VerifiersEnvironment)
    return found


def used(environment: VerifiersEnvironment, use: Callable[[VerifiersEnvironment], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        try:
            return await use(environment)
        finally:
            await environment.close()

    return anyio.run(run)


async def failed(environment: VerifiersEnvironment, number: int) -> EnvironmentFailed:
    with pytest.raises(EnvironmentFailed) as caught:
        await environment.group(number)
    return caught.value


def processes_with(name: str) -> set[str]:
    """Processes that run with this word on their command line."""
    found = set[str]()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if name in (place / "cmdline").read_text().split("\0"):
                found.add(place.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("keys", [{"python": "/nowhere/python"}, {"entry": "/a/b.py:name"}, {"entry": "/a/not-one.py"}])
def test_what_names_nothing_is_refused_before_a_start(tmp_path: Path, keys: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"no program|does not name a taskset"):
        environment_of(tmp_path, 9, **({"python": sys.executable} | keys))


def test_a_python_without_verifiers_says_how_to_get_it(tmp_path: Path) -> None:
    environment = environment_of(tmp_path, 9, python=sys.executable)
    told = used(environment, lambda it: failed(it, 1))
    assert told.outside and "pip install 'verifiers>=0.4.0'" in told.line(), told.line()


@installed
@slow
@pytest.mark.parametrize(
    ("settings", "entry", "said"),
    [
        ("{}", "no-such-taskset", "taskset 'no-such-taskset' not found"),
        ("{ turn = 2 }", str(TALK), "turn"),
        ("{ taskset = { faults = [] } }", str(TALK), "the taskset has no tasks"),
        ('{ renderer = { name = "none" } }', str(TALK), "renderer"),
    ],
)
def test_a_taskset_that_cannot_be_loaded_is_told_with_what_is_wrong(
    tmp_path: Path, settings: str, entry: str, said: str
) -> None:
    told = used(environment_of(tmp_path, 9, settings, entry=entry), lambda it: failed(it, 1))
    assert told.outside and "cannot be imported" in told.line() and said in told.line(), told.line()


@installed
@slow
def test_each_fault_costs_its_group_and_no_other(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults of tasks, in one environment; a process that hangs or dies is started again."""
    faults = '{ taskset = { faults = ["NaN", "raises", "sleeps", "hangs", "dies"] } }'

    async def run() -> list[EnvironmentFailed]:
        async with serving() as server:
            server.otherwise = behave.listing(4096)
            environment = environment_of(tiny_model, server.port, faults, timeout_s="3", group="2")
            try:
                return [await failed(environment, number) for number in range(1, 6)]
            finally:
                await environment.close()

    monkeypatch.setattr(python_environment, "GRACE_S", 3.0)
    before = processes_with("600")
    nan, raises, sleeps, hangs, dies = anyio.run(run)
    assert "has 0 of 2 rollouts of task 1 (the score is nan, no finite number)" in nan.line()
    assert "task 2 (it failed: TaskError" in raises.line() and "of the reward" in raises.line()
    assert "task 3 (it took longer than 3 s)" in sleeps.line()
    assert "took longer than 6 s to answer and was killed" in hangs.line()
    assert "died (" in dies.line() and "7" in dies.line()
    assert not any(one.outside for one in (nan, raises, sleeps, hangs, dies))
    assert processes_with("600") == before, "a program that led a session of its own is killed as well"


@installed
@slow
def test_an_engine_that_cannot_be_asked_loses_no_prompt(tiny_model: Path) -> None:
    async def silent(environment: VerifiersEnvironment) -> Any:
        return await failed(environment, 1)

    gone = used(environment_of(tiny_model, 9, group="2"), silent)
    assert gone.outside and "the engine cannot be reached" in gone.line() and "look whether the engine" in gone.line()

    async def run(answer: behave.Behaviour) -> EnvironmentFailed:
        async with serving() as server:
            server.otherwise = behave.listing(4096, answer)
            environment = environment_of(tiny_model, server.port, group="2")
            try:
                return await failed(environment, 1)
            finally:
                await environment.close()

    bare = anyio.run(run, behave.changed(lambda said: said["choices"][0].pop("logprobs")))
    assert bare.outside and "gave no token ids or log-probabilities" in bare.line()


@installed
@slow
def test_an_agent_that_asks_by_itself_has_no_token_ids(tiny_model: Path) -> None:
    async def run() -> EnvironmentFailed:
        async with serving() as server:
            server.otherwise = behave.changed(lambda said: said.update(created=1, object="chat.completion", usage=None))
            client = f'{{ type = "eval", base_url = "{server.url}", api_key_var = "NONE" }}'
            environment = environment_of(tiny_model, server.port, f"{{ agent = {{ client = {client} }} }}", group="2")
            try:
                return await failed(environment, 1)
            finally:
                await environment.close()

    told = anyio.run(run)
    assert "it has no token ids: its agent asks by a client of its own" in told.line(), told.line()


# --- real vLLM --------------------------------------------------------------------------------------------------------


@installed
@pytest.mark.engine
def test_a_group_of_several_turns_has_the_log_probabilities_of_its_tokens(vllm: Any, tiny_model: Path) -> None:
    async def run(environment: VerifiersEnvironment) -> Any:
        first, again = await environment.group(1), await environment.group(2)
        async with HttpLlm(Endpoint(vllm.url("/v1"), "tiny")) as llm:
            return first, again, [(await llm.score(one.tokens)).logprobs for one in first.rollouts]

    first, again, scored = used(environment_of(tiny_model, vllm.port, "{ turns = 2 }"), run)
    assert isinstance(first, Sampled) and first.left_out == again.left_out == 0
    check(Group(first.rollouts))
    prompts = [one.tokens[: one.learned.index(True)] for one in (*first.rollouts, *again.rollouts)]
    assert all(one[:8] == prompts[0][:8] for one in prompts), "after the last task they come again"
    for one, said in zip(first.rollouts, scored, strict=True):
        mu = memoryview(one.logprobs).cast("f").tolist()
        places = [place for place, is_learned in enumerate(one.learned) if is_learned]
        assert len(mu) == len(places) and len(places) in (12, 24), "one turn, or both where they are written alike"
        apart = [abs(value - said[place - 1]) for value, place in zip(mu, places, strict=True)]
        assert sum(apart) / len(apart) < 0.1


ENVIRONMENT = f"""
[[environment]]
name = "talk"
kind = "verifiers"
entry = "{TALK}"
python = "{PYTHON}"
group = 2
max_tokens = 12
timeout_s = 120
settings = {{ turns = 2 }}
"""


@pytest.fixture
def daemon(tmp_path: Path, tiny_model: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path, tiny_model, ENVIRONMENT, VLLM)
    try:
        yield made.start()
    finally:
        made.end()


@installed
@pytest.mark.engine
def test_a_daemon_learns_from_them_and_a_replay_has_the_same_bits(daemon: Daemon) -> None:
    daemon.wait(lambda s: s["step"] >= 3, "three steps")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
    assert daemon.post("/v1/chat/completions", body)[0] == 200, "others are served meanwhile"
    with urllib.request.urlopen(f"{daemon.url}/metrics") as answer:
        (begun,) = re.findall(rf"^{BEGUN} (\S+)$", answer.read().decode(), re.M)
    daemon.stop()
    assert float(begun) == 1.0, "rollouts are no requests of users"
    recorded = [one for one, _ in journal_reader.recorded(daemon.journal)]
    events = [one.event for one in recorded]
    groups = [one for one in events if isinstance(one, ev.GroupSampled) and one.example]
    assert len(groups) >= 3 and all(0 <= one.first <= one.last for one in groups), "by weights that are known"
    steps = [one for one in events if isinstance(one, ev.StepCompleted)]
    assert len(steps) >= 3 and all(0.8 < one.metrics["ratio"] < 1.2 for one in steps), steps
    for group in groups:
        (record,) = [one for one in events if isinstance(one, ev.ExampleAccepted) and one.example == group.example]
        form = decode_learned(bytes(record.record)).group
        assert len(read_group((daemon.root / "state" / blobs.NAME / form.rollouts).read_bytes()).rollouts) == 2
    done = subprocess.run(
        daemon.command("replay", "--json"), capture_output=True, text=True, check=True, env=daemon.environment()
    )
    assert json.loads(done.stdout)["fingerprint"] == steps[-1].fingerprint
