"""The judge of the configuration: who it is, and how it gives way to everybody else at our own engine."""

from pathlib import Path

import pytest

from apollod.errors import ConfigError
from apollod.supervisor.child_commands import engine_command
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.judge import OWN_PRIORITY, Judge

ELSEWHERE = ("endpoint.j.base_url=http://j/v1", "endpoint.j.model=big", "judge.endpoint=j")


def config(*overrides: str) -> Config:
    """Without the quality guard, which asks our own engine, too."""
    return load_config(None, ["model.path=/m", "quality.every_steps=0", *overrides], {})


@pytest.mark.parametrize(
    ("overrides", "flag", "priority"),
    [
        ((), 0, None),
        (("judge.mode=all",), 1, OWN_PRIORITY),
        (("judge.mode=flagged",), 1, OWN_PRIORITY),
        (("judge.mode=all", *ELSEWHERE), 0, None),
        (("environment.sums.entry=x",), 1, OWN_PRIORITY),
        (("judge.mode=all", 'engine.args=["--scheduling-policy=priority"]', *ELSEWHERE), 1, None),
        (("judge.mode=all", 'engine.args=["--scheduling-policy", "fcfs"]'), 1, None),
        (("judge.mode=all", 'engine.args=["--scheduling-policy=priority"]'), 1, OWN_PRIORITY),
    ],
)
def test_our_own_engine_serves_everybody_else_before_the_judge(overrides, flag, priority) -> None:
    found = config(*overrides)
    arguments = engine_command(found, "/m", None)
    assert sum(argument.startswith("--scheduling-policy") for argument in arguments) == flag
    assert Judge(found)._priority == priority


def test_who_judges() -> None:
    own = Judge(config("judge.mode=all", "engine.served_name=tiny", "engine.host=::1", "engine.port=81"))
    assert own.configured().served and own.configured().endpoint == "http://[::1]:81/v1"
    assert own.model == "tiny" and len(own.configured().cases) == 39
    other = Judge(config("judge.mode=all", *ELSEWHERE))
    assert not other.configured().served and other.model == "big"


def test_cases_that_cannot_be_used_keep_the_daemon_from_starting_and_say_why(tmp_path: Path) -> None:
    bad = tmp_path / "mine.jsonl"
    bad.write_text('{"text": "x"}\n')
    with pytest.raises(ConfigError, match=r"\[judge\] cases: .*mine.jsonl:1 is no case: expect is None"):
        Judge(config("judge.mode=all", f'judge.cases=["{bad}"]'))
    with pytest.raises(ConfigError, match="cannot be read"):
        Judge(config("judge.mode=all", f'judge.cases=["{tmp_path}/none"]'))
