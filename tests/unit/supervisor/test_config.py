"""The configuration: precedence, and errors that say what to do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from apollod.core.settings import OptimizerSettings
from apollod.errors import ConfigError
from apollod.supervisor.child_commands import engine_environment
from apollod.supervisor.config import load_config
from apollod.supervisor.dreaming.tested_answers import pattern_refused
from apollod.supervisor.sections import RETIRED, EndpointSection


def write(path: Path, text: str) -> str:
    file = path / "a.toml"
    file.write_text(text)
    return str(file)


def test_precedence_flag_environment_credential_file_default(tmp_path):
    file = write(
        tmp_path,
        '[model]\npath = "/m"\n[engine]\nport = 1\nserved_name = "file"\napi_key = "file"\n[trainer]\nrank = 8\n',
    )
    (tmp_path / "engine.api_key").write_text("secret\n")
    (tmp_path / "engine.served_name").write_text("credential")
    environ = {
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "APOLLOD_ENGINE__SERVED_NAME": "env",
        "APOLLOD_ENGINE__PORT": "2",
    }
    config = load_config(file, ["engine.port=3"], environ)
    assert (config.engine.port, config.engine.served_name, config.engine.api_key) == (3, "env", "secret")
    assert (config.trainer.rank, config.trainer.max_tokens) == (8, 4096)


TAUGHT = '[[environment]]\nname = "e"\nentry = "x"\n'
BIG = '[[endpoint]]\nname = "b"\nbase_url = "http://x/v1"\nmodel = "m"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'{TAUGHT}objective = "dro"\nterms = {{ kl = 0.1 }}\n', ['terms kl belongs to objective = "grpo"']),
        (
            f'{TAUGHT}terms = {{ kl = 0.1 }}\n[checkpoint]\nkeep_base = "off"\n',
            ["terms kl holds answers near the weights before the first step", '[checkpoint] keep_base = "auto"'],
        ),
        (f'{TAUGHT}teacher = "big"\n', ['objective = "distill" and teacher belong together']),
        (f'{TAUGHT}objective = "distill"\nteacher = "big"\n', ['teacher = "big" names no [[endpoint]]']),
        (f'{TAUGHT}objective = "distill"\nteacher = "b"\n{BIG}', ["[[endpoint]] b", "set tokenizer to a directory"]),
        (f'{TAUGHT}objective = "distill"\nteacher = "b"\ntemperature = 0.5\n', ["so sample at 1"]),
        ("[trainer]\nlrr = 1e-5\n", ["unknown key 'lrr' in [trainer]", "'lr'"]),
        ("[trainner]\nlr = 1e-5\n", ["unknown key 'trainner'", "'trainer'"]),
        ("[trainer]\nlr = -1.0\n", ["trainer.lr", "> 0"]),
        ("[trainer]\nlimiter = 0.5\n", ["limiter = 0.5", "trainer"]),
        ('[trainer]\noptimizer = "adafactor"\nmoments = "bfloat16"\n', ["bfloat16", "adafactor", "trainer"]),
        ("[trainer]\nlr = inf\n", ["lr = inf", "trainer"]),
        ("[checkpoint]\ndelay_s = inf\n", ["delay_s = inf", "checkpoint"]),
        ("[trainer]\nloss_max = inf\n", ["loss_max = inf", "trainer"]),
        ("[trainer]\nloss_max = nan\n", ["loss_max = nan", "trainer"]),
        ("[trainer]\nbetas = [0.9, nan]\n", ["betas = nan", "trainer"]),
        ("[trainer]\nloss_spike = 0.5\n", ["loss_spike = 0.5", "more than 1"]),
        ("[trainer]\nlr_floor = 1.5\n", ["trainer.lr_floor", "<= 1"]),
        ("[trainer]\naccumulate = 0\n", ["trainer.accumulate", ">= 1"]),
        ('[trainer]\nschedule = "linear"\n', ["trainer.schedule", "linear"]),
        ('[trainer]\nlayers = "20 to 31"\n', ['layers = "20 to 31"', "0-3,20-31"]),
        ('[trainer]\nlayers = "31-20"\n', ["31-20", "ends before it begins"]),
        ('[trainer]\noptimizer = "sgd"\n', ["trainer.optimizer", "sgd"]),
        ("[engine]\nport = 99999\n", ["engine.port"]),
        ('[engine]\nargs = ["--enable_sleep_mode"]\n', ["--enable_sleep_mode would free the weights", "leave it out"]),
        ('[engine]\nargs = ["--weight-transfer-config.backend=nccl"]\n', ["would allocate the weights anew"]),
        ('[engine]\nargs = ["--weight-tr", "{}"]\n', ["args: --weight-tr would allocate the weights anew"]),
        ("[checkpoint]\nkeep = 0\n", ["checkpoint.keep"]),
        ("[checkpoint]\nkeep_bytes = -1\n", ["checkpoint.keep_bytes"]),
        ('[checkpoint]\nkeep_bytes = "all"\n', ["checkpoint.keep_bytes", "all"]),
        ('[lessons]\nask_again = ["1h", "soon"]\n', ["ask_again: 'soon' is no distance", 'such as "1h"']),
        ('[lessons]\npractice = "all"\n', ["lessons.practice", "all"]),
        ("[model\n", ["is not TOML"]),
        ("[trainer.lr]\na = 1\n", ["trainer.lr", "float"]),
        ('[watch]\npath = "/x"\n', ["'watch' is no list of tables", "[[watch]]"]),
        ("[judge]\ntrust_min = 0.5\n", ["judge.trust_min", "0.5"]),
        ("[judge]\ntemperature = 0.0\n", ["votes = 3", "one vote"]),
        ('[judge]\nendpoint = "j"\n', ['[judge] endpoint = "j" names no [[endpoint]]: there is none']),
        ('[dream]\nendpoint = "j"\n', ['[dream] endpoint = "j" names no [[endpoint]]: there is none']),
        ('[endpoint]\nname = "j"\n', ["'endpoint' is no list of tables", "[[endpoint]]"]),
        ('[[endpoint]]\nname = "j"\nbase_url = "http://j/v1"\n', ["missing required field `model`", "endpoint[0]"]),
        ('[[endpoint]]\nname = "j"\nmodel = "m"\n', ["missing required field `base_url`", "endpoint[0]"]),
        ('[[endpoint]]\nname = "j"\nmodel = "m"\nbase_url = "j.example"\n', ["not the base URL", "http://127.0.0.1"]),
        (2 * '[[endpoint]]\nname = "j"\nmodel = "m"\nbase_url = "http://j/v1"\n', ['"j" is used twice']),
        ('[judge]\nbase_url = "http://j/v1"\n', ["missing required field `model`", "endpoint[0]"]),
        ('[judge]\nmodel = "m"\n', ["missing required field `base_url`", "endpoint[0]"]),
        ('[judge]\napi_key = "k"\n', ["missing required field `base_url`", "endpoint[0]"]),
        ('[[watch]]\npath = "/x"\nformt = "auto"\n', ["unknown key 'formt' in [watch]", "'format'"]),
        ('[[watch]]\npath = "/x"\nmode = "tial"\n', ["[[watch]] mode = 'tial'", "did you mean 'tail'", "poll"]),
        ('[[watch]]\npath = "/x"\nstrip = "memry"\n', ["[[watch]] strip = 'memry'", "did you mean 'memory'"]),
        ('[[watch]]\npath = "/x"\ntier = "dream"\n', ["[[watch]] tier = 'dream'", "direct, bulk"]),
        ('[[watch]]\npath = "/x"\nmodels = "apollo"\n', ["watch[0].models", "array"]),
        ('[[watch]]\npath = "/x"\ncontext_tokens = 0\n', ["watch[0].context_tokens", ">= 1"]),
        ('[[watch]]\npath = "/x"\nsettle_s = 0.5\n', ["watch[0].settle_s", ">= 1"]),
        ('[[watch]]\npath = "/x"\nsidechains = "yes"\n', ["watch[0].sidechains", "bool"]),
        ('[[watch]]\nformat = "auto"\n', ["watch[0]", "path"]),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(tmp_path, text, words):
    head = "" if "[model" in text else '[model]\npath = "/m"\n'
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, head + text), [], {})
    line = caught.value.line()
    assert "\n" not in line and caught.value.hint
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("text", "overrides", "environ", "words"),
    [
        ('[[watch]]\npath = "/x"\n', [], {"APOLLOD_WATCH__PATH": "x"}, ["APOLLOD_WATCH__PATH", "[[watch]]"]),
        ("", ["watch.path=x"], {}, ["--set watch.path", "[[watch]]"]),
        ("", ["endpoint.base_url=x"], {}, ["--set endpoint.base_url", "endpoint.NAME.key"]),
        ("", ["endpoint.j.url=x"], {}, ["--set endpoint.j.url", "'base_url'"]),
        ("", ["trainer.lrr=1"], {}, ["--set trainer.lrr", "'lr'"]),
        ("", [], {"APOLLOD_TRAINNER__LR": "1"}, ["APOLLOD_TRAINNER__LR", "'trainer'"]),
    ],
)
def test_a_mistake_outside_of_the_file_is_named_as_it_was_written(tmp_path, text, overrides, environ, words):
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, '[model]\npath = "/m"\n' + text), overrides, environ)
    assert all(word in caught.value.line() for word in words) and "\n" not in caught.value.line()


@pytest.mark.parametrize(
    "text, words",
    [
        ('surroundings = ["none", "neutrl"]', ["dream.surroundings = 'neutrl'", "did you mean 'neutral'", "own"]),
        ("surroundings = []", ["surroundings names each kind once", "none, neutral, agent, own", '["none"]']),
        ('surroundings = ["own", "own"]', ["surroundings names each kind once"]),
        ('pattern = [{name = "a", instruction = "b", surroundings = ["x"]}]', ["[[dream.pattern]] surroundings = 'x'"]),
        (
            'pattern = [{name = "a", instruction = "b", surroundings = ["own", "own"]}]',
            ["[[dream.pattern]] a: surroundings names a kind twice"],
        ),
    ],
)
def test_surroundings_that_are_none_of_those_are_refused_with_a_way_out(tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, f'[model]\npath = "/m"\n[dream]\n{text}\n'), [], {})
    assert all(word in caught.value.line() for word in words), caught.value.line()


def test_a_section_that_is_a_plain_value_is_refused_whatever_is_laid_over_it(tmp_path):
    with pytest.raises(ConfigError, match="'model' is no table"):
        load_config(write(tmp_path, "model = 5\n"), [], {"APOLLOD_MODEL__PATH": "/m"})


def test_credentials_that_are_not_ours_are_left_alone_and_ours_are_checked(tmp_path):
    file, environ = write(tmp_path, '[model]\npath = "/m"\n'), {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    for name in ("tls.pem", "backup.key", "engine"):
        (tmp_path / name).write_bytes(b"\xff")
    assert load_config(file, [], environ).engine.api_key == ""
    (tmp_path / "engine.apikey").write_text("secret")
    with pytest.raises(ConfigError, match=r"credential engine\.apikey: unknown key 'apikey' in \[engine\]"):
        load_config(file, [], environ)
    (tmp_path / "engine.apikey").rename(tmp_path / "engine.api_key").write_bytes(b"se\xff")
    with pytest.raises(ConfigError, match=r"engine\.api_key is not UTF-8 text \(byte 3\)"):
        load_config(file, [], environ)


ONCE = {
    "trainer.limiter_rule": "growth", "trainer.cache_every": 5, "trainer.rescore_share": 0.5, "inbox.rescan_s": 0.5,
    "review.divergence_share": 1.0, "review.divergence_after": 0, "judge.priority": "auto", "quality.loss_margin": 90.0,
    "quality.entropy_margin": 0.0, "quality.length_margin": 0.0, "dream.answer_temperature": 0.1,
    "checkpoint.keep_days": 2.0,
}  # fmt: skip
"""Retired keys without a successor, with a value that was allowed."""


def test_every_retired_key_is_tried() -> None:
    assert ONCE.keys() == {dotted for dotted, retired in RETIRED.items() if not retired.moved}


@pytest.mark.parametrize("dotted", ONCE)
@pytest.mark.parametrize("where", ["file", "environment", "flag"])
def test_a_retired_key_is_read_with_a_warning_and_changes_nothing(tmp_path: Path, dotted: str, where: str) -> None:
    section, _, key = dotted.partition(".")
    value, said = json.dumps(ONCE[dotted]), list[str]()
    text = f"[{section}]\n{key} = {value}\n" if where == "file" else ""
    environ = {f"APOLLOD_{section}__{key}".upper(): value} if where == "environment" else {}
    file = write(tmp_path, f'[model]\npath = "/m"\n{text}')
    found = load_config(file, [f"{dotted}={value}"] if where == "flag" else [], environ, said.append)
    assert found == load_config(None, ["model.path=/m"], {})
    assert said == [f"[{section}] {key} is no setting any more: {RETIRED[dotted].instead}"]


@pytest.mark.parametrize("section", ["judge", "dream"])
def test_keys_that_became_an_endpoint_s_still_make_one(tmp_path: Path, section: str) -> None:
    file = write(tmp_path, f'[model]\npath = "/m"\n[{section}]\nbase_url = "http://j/v1"\nmodel = "m"\n')
    (tmp_path / f"{section}.api_key").write_text("secret\n")
    said = list[str]()
    config = load_config(file, [f"{section}.model=n"], {"CREDENTIALS_DIRECTORY": str(tmp_path)}, said.append)
    assert config.endpoint == (EndpointSection(section, "http://j/v1", "n", "secret"),)
    assert getattr(config, section).endpoint == section
    assert [text.split(" is no setting")[0] for text in said] == [
        f"[{section}] {key}" for key in ("base_url", "model", "api_key")
    ] and all("[[endpoint]]" in text for text in said)
    empty = f'[model]\npath = "/m"\n[{section}]\nbase_url = ""\nmodel = ""\napi_key = ""\n'
    assert load_config(write(tmp_path, empty), [], {}) == load_config(None, ["model.path=/m"], {}), (
        "as `show` wrote them"
    )


def test_an_old_key_of_the_judge_goes_to_the_endpoint_that_it_names_where_a_new_one_counts_more(tmp_path: Path) -> None:
    text = '[model]\npath = "/m"\n[[endpoint]]\nname = "big"\nbase_url = "http://b/v1"\nmodel = "b"\n'
    file = write(tmp_path, f'{text}[judge]\nendpoint = "big"\nmodel = "old"\n')
    config = load_config(file, [], {"APOLLOD_JUDGE__API_KEY": "k"})
    assert config.endpoint == (EndpointSection("big", "http://b/v1", "b", "k"),)


def test_a_key_of_an_endpoint_is_set_by_its_name(tmp_path: Path) -> None:
    rest = 'base_url = "http://j/v1"\nmodel = "m"\napi_key = "file"\n'
    tables = "".join(f'[[endpoint]]\nname = "{name}"\n{rest}' for name in "ab")
    file = write(tmp_path, f'[model]\npath = "/m"\n{tables}')
    (tmp_path / "endpoint.a.api_key").write_text("credential\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "APOLLOD_ENDPOINT__B__API_KEY": "environment"}
    found = load_config(file, ["endpoint.c.base_url=http://c/v1", "endpoint.c.model=m"], environ)
    assert [(one.name, one.api_key) for one in found.endpoint] == [("a", "credential"), ("b", "environment"), ("c", "")]


def test_without_a_model_it_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"\[model\] path is not set"):
        load_config(write(tmp_path, ""), [], {})


def test_an_unknown_key_ends_the_command_with_usage_and_no_traceback(tmp_path):
    file = write(tmp_path, '[model]\npath = "/m"\n[inbox]\npaht = "/x"\n')
    done = subprocess.run(
        [sys.executable, "-m", "apollod", "run", "--config", file], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "'paht'" in done.stderr and "'path'" in done.stderr


def test_what_the_trainer_is_told_is_what_the_journal_records_and_a_replay_takes(tmp_path):
    text = """
[model]
path = "/m"
[trainer]
optimizer = "adamw"
rank = 8
scale = "tensor"
limiter = 1.5
loss_min = 0.5
moments = "bfloat16"
betas = [0.5, 0.75]
weight_decay = 0.25
rounding = "master"
max_tokens = 99
seed = 3
layers = "0-3"
freeze = ["*.bias"]
"""
    config = load_config(write(tmp_path, text), [], {})
    told = config.optimizer()
    default = msgspec.structs.asdict(OptimizerSettings())
    assert [name for name, value in msgspec.structs.asdict(told).items() if value == default[name]] == [
        "limiter_rule"  # no key
    ]
    assert config.settings().optimizer == told


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("", (1e-5, 1e-4)),
        ("lr = 1e-3", (1e-3, 1e-3)),  # not learned more weakly than a file
        ("lr = 1e-3\nlr_direct = 5e-5", (1e-3, 5e-5)),  # unless that is what was asked for
    ],
)
def test_what_is_given_directly_is_learned_at_least_as_strongly_as_a_file(tmp_path, text, rates):
    settings = load_config(write(tmp_path, f'[model]\npath = "/m"\n[trainer]\n{text}\n'), [], {}).settings()
    assert (settings.trainer.lr, settings.trainer.direct_rate) == rates


def test_the_example_of_init_can_be_loaded(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "apollod", "init", str(tmp_path / "x")], capture_output=True, text=True, check=True
    )
    config = load_config(done.stdout.strip(), [], {})
    assert config.inbox_dir == tmp_path / "x" / "inbox" and config.trainer.rank == 64 and not config.dream.pattern
    file = Path(done.stdout.strip())
    before, _, examples = file.read_text().partition("# [[dream.pattern]]")
    pattern, _, environment = re.sub("^# ", "", examples, flags=re.M).partition("\nScores to learn from")
    environment, _, control = environment.partition("\nTrainers of other programs")
    file.write_text(f"{before}[[dream.pattern]]{pattern}\n#{environment}\n#{control}")
    config = load_config(str(file), [], {})
    assert [one.entry for one in config.environment] == ["/path/to/sums.py"] and config.control.enabled
    (pattern,) = config.dream.pattern
    assert pattern.check.regex and len(pattern.seeds) == 2 and not pattern_refused(pattern)
    again = subprocess.run(
        [sys.executable, "-m", "apollod", "init", str(tmp_path / "x")], capture_output=True, text=True
    )
    assert again.returncode == 2 and "exists already" in again.stderr


@pytest.mark.parametrize("module", ["apollod.supervisor.config", "apollod.cli.control.ctl", "apollod.cli.main"])
def test_what_is_on_the_way_of_ctl_loads_nothing_heavy(module):
    code = (
        f"import sys, {module}; print([m for m in ('torch', 'vllm', 'transformers', 'numpy', 'anyio', 'structlog') "
        "if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_supervisor_never_loads_torch():
    code = (
        "import sys, apollod.supervisor.app; print([m for m in ('torch', 'vllm', 'transformers', 'numpy') if m in "
        "sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('bridge = "disk"', "sends weights to no engine"),
        ('receiver = [{ url = "http://a:1" }]', 'set bridge = "disk"'),
        ('bridge = "restart"\nreceiver = [{ url = "http://a:1" }]', "a command that restarts an engine"),
        ('bridge = "disk"\ncommand = ["x"]\nreceiver = [{ url = "http://a:1" }]', "belong together"),
        ('bridge = "disk"\nreceiver = [{ url = "http://a:1/v1" }]', "url"),
        ('bridge = "disk"\nreceiver = [{ url = "http://a:1" }, { url = "http://a:1" }]', "the same url"),
        ('bridge = "gloo"\nreceiver = [{ url = "http://a:1", dialect = "sglang" }]', 'bridge = "disk" for sglang'),
        ('bridge = "lora"\nrank = 0\nreceiver = [{ url = "http://a:1" }]', "rank"),
        ('bridge = "lora"\nreceiver = [{ url = "http://a:1" }]\n[checkpoint]\nkeep_base = "off"', "set base"),
        ('bridge = "tensor"\nreceiver = [{ url = "http://a:1", dialect = "sglang" }]', 'bridge = "disk" for sglang'),
        ('bridge = "disk"\nreceiver = [{ url = "http://a:1" }]\n[capture]\nmode = "all"', "turn one of them off"),
        ('bridge = "disk"\nreceiver = [{ url = "http://a:1" }]\n[control]\nenabled = true', "turn one of them off"),
    ],
)
def test_engines_elsewhere_that_cannot_be_served(tmp_path: Path, lines: str, said: str) -> None:
    file = tmp_path / "apollod.toml"
    file.write_text(f'[model]\npath = "/m"\n[weights]\n{lines}\n')
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_config(str(file))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('listen = "8001"', 'write it as "127.0.0.1:8001"'),
        ('listen = "unix:c.sock"', "names no absolute path"),
        (
            'enabled = true\nlisten = "0.0.0.0:8001"',
            "would let whoever reaches it write the weights; set [engine] api_key",
        ),
        ('enabled = true\nlisten = "10.0.0.7:8001"', "set [engine] api_key"),
        ('enabled = true\nlisten = "127.0.0.1:8000"', "has the port of the engine"),
    ],
)
def test_addresses_for_trainers_that_cannot_be(tmp_path: Path, lines: str, said: str) -> None:
    file = tmp_path / "apollod.toml"
    file.write_text(f'[model]\npath = "/m"\n[control]\n{lines}\n')
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_config(str(file))


@pytest.mark.parametrize(
    ("listen", "key", "expected"),
    [
        ("127.0.0.1:8001", "", "127.0.0.1:8001"), ("unix:/run/c.sock", "", "unix:/run/c.sock"),
        ("0.0.0.0:8001", "k", "0.0.0.0:8001"), ("", "", ""),
    ],
)  # fmt: skip
def test_the_engine_is_told_where_trainers_may_write(tmp_path: Path, listen: str, key: str, expected: str) -> None:
    set_ = [f"control.listen={listen}", "control.enabled=true", f"engine.api_key={key}", "model.path=/m"]
    config = load_config(None, [*set_, f"state.dir={tmp_path}"])
    assert engine_environment(config)["APOLLOD_CONTROL_LISTEN"] == expected
    off = load_config(None, [set_[0], "model.path=/m", f"state.dir={tmp_path}"])
    assert off.control.address is None and "APOLLOD_CONTROL" not in engine_environment(off)
