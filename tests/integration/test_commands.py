"""What every command keeps to: exit codes, one line where something is refused, one object with --json."""

import json
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest
from support.journals import STORY, write
from support.other_user import as_nobody

from apollod.cli.control.ctl import ask
from apollod.cli.main import main
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, NotPermitted
from apollod.supervisor.sections import RETIRED
from apollod.wire import messages as msg
from apollod.wire.framing import encode_frame

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def apollod(*args: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([sys.executable, "-m", "apollod", *args], capture_output=True, text=True, timeout=60, **more)
    assert "Traceback" not in done.stderr
    return done


@contextmanager
def daemon_that_says(path: Path, answer: msg.Answer, requests: list[bytes] | None = None) -> Iterator[str]:
    """Something that listens, takes one request (into `requests`) and gives this answer."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                request = connection.recv(1 << 16)
                if requests is not None:
                    requests.append(request)
                connection.sendall(encode_frame(msg.encode(answer)))

        server = Thread(target=serve)
        server.start()
        yield str(path)
        server.join()


@pytest.mark.parametrize(
    ("code", "kind"), [(1, ApolloError), (2, ConfigError), (3, DaemonUnreachable), (4, NotPermitted), (9, ApolloError)]
)
def test_a_refusal_ends_the_command_with_the_code_that_the_daemon_gave(tmp_path, capsys, code, kind):
    refusal = msg.Failure("it is so", "do this", code)
    with daemon_that_says(tmp_path / "s", refusal) as path, pytest.raises(ApolloError) as caught:
        ask(path, msg.PauseRequest())
    assert type(caught.value) is kind and caught.value.line() == "it is so; do this"
    with daemon_that_says(tmp_path / "t", refusal) as path:
        assert main(["ctl", "pause", "--socket", path]) == (code if code <= 4 else 1)
    assert capsys.readouterr().err == "apollod: it is so; do this\n"


# --- what the system refuses --------------------------------------------------------------------------------------


@as_root
@pytest.mark.parametrize(
    "args",
    [
        ["init", "{dir}/new"],
        ["config", "show", "--config", "{dir}/a.toml"],
        ["ctl", "submit", "{dir}/a.toml", "--socket", "{dir}/s"],
    ],
)
def test_what_is_not_permitted_is_exit_code_4_and_one_line_that_names_the_file(args):
    with TemporaryDirectory(prefix="apollod-", dir="/tmp") as directory:  # pytest's own are closed to others
        Path(directory).chmod(0o755)
        (Path(directory) / "a.toml").write_text('[model]\npath = "/m"\n')
        (Path(directory) / "a.toml").chmod(0o600)
        done = as_nobody(*(arg.format(dir=directory) for arg in args))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1), done.stderr
        assert directory in done.stderr and "is root's" in done.stderr and "run this as root" in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["init", "{file}/new"],
        ["ctl", "submit", "{dir}", "--socket", "{dir}/s"],
        ["ctl", "submit", "{dir}/none", "--socket", "{dir}/s"],
    ],
)
def test_what_the_system_refuses_is_exit_code_1_and_one_line_that_names_the_file(tmp_path, args):
    file = tmp_path / "file"
    file.write_text("")
    done = apollod(*(arg.format(file=file, dir=tmp_path) for arg in args))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and str(tmp_path) in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_result_that_cannot_be_written_is_a_failure_and_a_reader_that_went_away_is_none(unbuffered):
    command, env = [sys.executable, "-m", "apollod", "version"], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and "No space left" in done.stderr
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as gone:
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    assert (done.returncode, done.stderr) == (0, "")


# --- numbers and names that are none ------------------------------------------------------------------------------


LIMIT_MAX, COUNT_MAX = "2147483646", "9223372036854775807"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("commands") / "journal.db", STORY))


@pytest.mark.parametrize("number", ["99999999999999999999", "-1"])
@pytest.mark.parametrize(
    ("words", "args"),
    [
        (
            f"a limit of {{}} is none; give a whole number from 0 to {LIMIT_MAX}",
            ["ctl", "events", "--file", "JOURNAL", "--limit={}"],
        ),
        ("a limit of {} is none", ["ctl", "query", "SELECT seq FROM events", "--file", "JOURNAL", "--limit={}"]),
        ("a limit of {} is none", ["ctl", "example", "list", "--file", "JOURNAL", "--limit={}"]),
        (
            f"there is no event {{}}; give a whole number from 0 to {COUNT_MAX}",
            ["ctl", "events", "--file", "JOURNAL", "--after={}"],
        ),
        ("there is no event {}", ["ctl", "replay", "--file", "JOURNAL", "--to={}"]),
        (
            f"there is no step {{}}; give a whole number from 0 to {COUNT_MAX}",
            ["replay", "--journal", "JOURNAL", "--from={}"],
        ),
        ("there is no step {}", ["replay", "--journal", "JOURNAL", "--to={}"]),
        ("'{}' is neither a step nor a checkpoint; give a number", ["ctl", "rollback", "--socket", "/none", "--to={}"]),
    ],
)
def test_what_nothing_can_be_counted_with_is_wrong_usage(journal, words, args, number):
    done = apollod(*(journal if arg == "JOURNAL" else arg.replace("{}", number) for arg in args))
    assert (done.returncode, done.stdout) == (2, "")
    assert words.replace("{}", number) in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["ctl", "events", "--file", "JOURNAL", "--limit", LIMIT_MAX], 0),
        (["ctl", "events", "--file", "JOURNAL", "--after", "3", "--limit", LIMIT_MAX], 0),
        (["ctl", "events", "--file", "JOURNAL", "--after", COUNT_MAX], 0),
        (["ctl", "query", "SELECT seq FROM events", "--file", "JOURNAL", "--limit", LIMIT_MAX], 0),
        (["ctl", "query", "SELECT seq FROM events", "--file", "JOURNAL", "--limit", "3000000000"], 2),
        (["ctl", "example", "list", "--file", "JOURNAL", "--limit", LIMIT_MAX], 0),
        (["ctl", "replay", "--file", "JOURNAL", "--to", COUNT_MAX], 1),
        (["replay", "--journal", "JOURNAL", "--from", COUNT_MAX], 1),
        (["replay", "--journal", "JOURNAL", "--to", COUNT_MAX], 1),
        (["ctl", "rollback", "--socket", "/none", "--to", COUNT_MAX], 3),
    ],
)
def test_the_largest_numbers_are_numbers(journal, args, code):
    assert apollod(*(journal if arg == "JOURNAL" else arg for arg in args)).returncode == code


# --- submit and train without a daemon ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", '{"text": "a"}\n'])
def test_submit_reaches_for_the_daemon_also_where_there_is_nothing_to_submit(tmp_path, text):
    done = apollod("ctl", "submit", "-", "--socket", str(tmp_path / "s"), input=text)
    assert done.returncode == 3 and done.stdout == ""


def test_a_file_whose_name_is_no_text_is_submitted_under_a_name_that_is(tmp_path):
    """As the inbox calls it: in the journal it stands in JSON."""
    name = os.fsencode(tmp_path) + b"/caf\xe9.jsonl"
    Path(os.fsdecode(name)).write_text('{"text": "a"}\n')
    counts = {"schema_version": 1, "examples": ["a" * 32], "duplicates": [], "rejected": []}
    requests: list[bytes] = []
    with daemon_that_says(tmp_path / "s", msg.Reply(counts), requests) as path:
        done = apollod("ctl", "submit", os.fsdecode(name), "--socket", path)
    assert (done.returncode, done.stdout) == (0, "1 accepted, 0 duplicates, 0 rejected\n")
    assert f"ctl:{tmp_path}/caf\\xe9.jsonl".encode() in requests[0]


@pytest.mark.parametrize(
    "args", [["relearn", "caf\udce9"], ["train", "--text", "caf\udce9"], ["train", "--messages", '["caf\udce9"]']]
)
def test_words_that_are_no_text_are_wrong_usage(tmp_path, args):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        done = apollod("ctl", *args, "--socket", str(tmp_path / "s"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and "; " in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--prompt", "a"], "--completion"),
        (["--completion", "a", "--text", "b"], "--prompt"),
        (["--text", " "], "text is empty"),
        (["--messages", "[{]"], "--messages is not JSON"),
        (["--messages", '[{"role": "user", "content": "a"}]'], "no assistant turn"),
        (["--messages", "{}"], "not a list"),
        (["--messages", "[" * 5000], "--messages is not JSON"),
    ],
)
def test_an_example_that_is_none_is_wrong_usage_and_no_daemon_hears_of_it(tmp_path, capsys, args, words):
    assert main(["ctl", "train", *args, "--socket", str(tmp_path / "nobody")]) == 2
    told = capsys.readouterr().err
    assert words in told and "; " in told and told.count("\n") == 1


def test_train_takes_one_example(capsys):
    for args in ([], ["--text", "a", "--messages", "[]"]):
        with pytest.raises(SystemExit) as ended:
            main(["ctl", "train", *args])
        assert ended.value.code == 2
    assert "--messages" in capsys.readouterr().err


# --- --json -------------------------------------------------------------------------------------------------------


def answer_of(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    assert main([*args, "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer.pop("schema_version") == 1
    return answer


def test_config_as_an_object(tmp_path, capsys):
    file = tmp_path / "a.toml"
    elsewhere = 'base_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    receiver = 'bridge = "disk"\n[[weights.receiver]]\nurl = "http://127.0.0.1:1"\n'
    keys = {
        "[engine]": "", "[weights]": receiver, "[[endpoint]]": f'name = "j"\n{elsewhere}', "[judge]": elsewhere,
        "[dream]": elsewhere,
    }  # fmt: skip
    sections = "".join(f'{header}\n{more}api_key = "secret"\n' for header, more in keys.items())
    file.write_text(f'[model]\npath = "/m"\n{sections}[[watch]]\npath = "/logs"\n')
    shown = answer_of(capsys, "config", "show", "--config", str(file))
    assert (
        shown["model"] == {"path": "/m"}
        and shown["trainer"]["rank"] == 64
        and [(watch["path"], watch["format"]) for watch in shown["watch"]] == [("/logs", "auto")]
    )
    assert [one["name"] for one in shown["endpoint"]] == ["j", "judge", "dream"]
    keyed = (shown["engine"], *shown["weights"]["receiver"], *shown["endpoint"])
    assert [one["api_key"] for one in keyed] == ["..."] * 5
    assert main(["config", "show", "--config", str(file)]) == 0
    assert "secret" not in capsys.readouterr().out
    file.write_text('[model]\npath = "/m"\n')
    assert answer_of(capsys, "config", "show", "--config", str(file))["engine"]["api_key"] == ""


def test_what_config_shows_can_be_loaded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        '[model]\npath = "/m"\n[[environment]]\nname = "x"\nkind = "verifiers"\nentry = "sums"\n'
        'settings = { agent = { harness = { id = "null" }, "max turns" = [1, 2] } }\nterms = { high = 1.28 }\n'
    )
    assert main(["config", "show", "--config", str(file)]) == 0
    shown = tomllib.loads(capsys.readouterr().out)["environment"][0]
    assert shown["settings"] == {"agent": {"harness": {"id": "null"}, "max turns": [1, 2]}}
    assert shown["terms"] == {"high": 1.28}


def test_retired_keys_are_warned_of_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        f'[model]\npath = "/m"\n[state]\ndir = "{tmp_path}"\n[trainer]\nlimiter_rule = "growth"\n'
        f'[quality]\non_alarm = ["{tmp_path}/none"]\n'
    )
    text = "[trainer] limiter_rule is no setting any more: it is envelope; steps of older journals are run again"
    (warning,) = answer_of(capsys, "config", "check", "--config", str(file), code=1)["warnings"]
    assert warning.startswith(text)
    assert main(["config", "show", "--config", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"apollod: warning: {warning}\n"
    sections = {name: keys for name, keys in json.loads(printed.out).items() if isinstance(keys, dict)}
    assert "limiter" in sections["trainer"] and RETIRED.keys().isdisjoint(
        f"{name}.{key}" for name, keys in sections.items() for key in keys
    )
    done = apollod("run", "--config", str(file))
    assert done.returncode == 2 and "config.retired" in done.stderr and text in done.stderr


def test_config_check_as_an_object(tmp_path, capsys):
    model = tmp_path / "model"
    config = ["config", "check", "--set", f"model.path={model}", "--set", f"state.dir={tmp_path}"]
    refused = answer_of(capsys, *config, code=1)
    assert refused["ok"] is False and "does not exist; set [model] path" in refused["error"]
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").touch()
    told = answer_of(capsys, *config)
    assert told.pop("products") in ("bf16", "float32"), "what this processor has"
    assert abs(told.pop("keep_bytes") - (free := told.pop("free_bytes")) / 2) < 0.1 * free and free > 0
    assert told == {
        "ok": True, "error": "", "model": str(model), "state": str(tmp_path), "inbox": str(tmp_path / "inbox"),
        "url": "http://127.0.0.1:8000", "history_bytes": 0, "growth": None,
        "warnings": [],
    }  # fmt: skip
    model.chmod(0o777)
    (reachable, writable) = answer_of(capsys, *config, "--set", "engine.host=0.0.0.0")["warnings"]
    assert "set [engine] api_key" in reachable and f"chmod go-w {model}" in writable
    assert main([*config, "--set", "engine.host=0.0.0.0"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")] == [
        f"warning: {one}" for one in (reachable, writable)
    ]
    keyed = answer_of(capsys, *config, "--set", "engine.host=::", "--set", "engine.api_key=k")["warnings"]
    assert keyed == [writable]
    assert answer_of(capsys, *config, "--set", "trainer.kernels=triton", code=1)["error"]


def test_init_as_an_object(tmp_path, capsys):
    assert answer_of(capsys, "init", str(tmp_path / "a")) == {
        "config": str(tmp_path / "a" / "apollod.toml"), "inbox": str(tmp_path / "a" / "inbox"),
        "key": str(tmp_path / "a" / "state" / "key"),
    }  # fmt: skip
