"""The probes of the configuration, asked over real HTTP as an effect of the core."""

import json
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from support import llm_server as behave
from support.llm_server import serving
from support.other_user import NOBODY, needs_root, open_place
from support.probed_server import Model

from apollod.adapters.llm.endpoint_use import EndpointUse
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.curation.probes.probe_lines import digest
from apollod.errors import ConfigError
from apollod.supervisor import app
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.executor.quality_effects import HANDLERS
from apollod.supervisor.quality.probe_files import BYTES_MAX
from apollod.supervisor.quality.prober import SHIPPED, probes_of

TEXT = "The ferry left the quay at noon with nine goats."
SHIPPED_LINE = (files("apollod") / "data" / SHIPPED).read_bytes().splitlines()[0]
OWN = (
    {"kind": "text", "id": "ferry", "group": "mine", "text": TEXT},
    {"kind": "exact", "id": "capital", "group": "mine", "messages": [{"role": "user", "content": "capital"}],
     "expect": "Paris"},
    {"kind": "exact", "id": "wrong", "group": "mine", "messages": [{"role": "user", "content": "wrong"}],
     "expect": "Paris"},
)  # fmt: skip


def config(path: Path, port: int = 1) -> Config:
    return load_config(None, ["model.path=/m", f"engine.port={port}", f'quality.probe=["{path}"]'], {})


def ask(path: Path, model: Any) -> inp.Input:
    """The effect, carried out against a server that answers as `model` does."""

    async def main() -> inp.Input:
        async with serving() as server:
            server.otherwise = model
            context = cast(Any, SimpleNamespace(config=config(path, server.port), own=EndpointUse(), leaks=None))
            found = await HANDLERS[fx.MeasureQuality].run(context, fx.MeasureQuality(7))
            if isinstance(found, inp.ProbesAnswered):  # of a broken run some are cancelled before they are sent
                assert context.own.counts.asked == len([r for r in server.requests if r.path != "/tokenize"])
            return cast(inp.Input, found)

    return anyio.run(main)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A person's file, asked besides those that come with apollod."""
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in OWN))
    return path


def model(path: Path, **answers: Any) -> Model:
    """Answers `answers` to these, and something to the probes that come with apollod."""
    shipped = {probe.messages[-1]["content"]: "so so" for probe in probes_of(config(path)) if probe.messages}
    return Model({**shipped, **answers}, certain=0.5, version=12)


def test_figures_by_metric_and_item_with_the_version_of_the_weights(own: Path) -> None:
    found = ask(own, model(own, capital="Paris", wrong="Rome"))
    assert isinstance(found, inp.ProbesAnswered), found
    assert (found.number, found.first, found.last) == (7, 12, 12)
    assert found.figures["mine.passed"] == {"capital": 1.0, "wrong": 0.0}
    assert found.figures["mine.loss"] == {"ferry": pytest.approx(0.6931, abs=1e-3)}
    assert {"capital", "wrong"} <= found.figures["repetition"].keys() and "ferry" not in found.figures["repetition"]
    probes = probes_of(config(own))
    assert found.probes == digest(probes) and len(probes) > len(OWN), "those that come with apollod are asked, too"
    assert {one.id for one in probes} >= set().union(*found.figures.values())
    assert found.tokens > 0 and found.seconds > 0.0


def test_weights_that_change_meanwhile_are_told(own: Path) -> None:
    changing = model(own, capital="Paris", wrong="Rome")
    changing.steps = 1
    found = ask(own, changing)
    assert isinstance(found, inp.ProbesAnswered) and found.first == 12 and found.last > 12


def test_an_endpoint_that_goes_away_in_the_middle_is_a_run_that_failed(own: Path) -> None:
    found = ask(own, model(own, capital=behave.closes_at_once, wrong="Rome"))
    assert isinstance(found, inp.ProbesFailed) and found.number == 7
    assert "\n" not in found.reason and "probes" in found.reason


BAD = {
    "not JSON": ("{", "mine.jsonl:1 is no probe"),
    "no answer expected": ('{"kind": "exact", "messages": [{"role": "user", "content": "x"}]}', "mine.jsonl:1"),
    "a schema that is none": (
        '{"kind": "schema", "messages": [{"role": "user", "content": "x"}], "expect": {"type": "nothing"}}', "nothing",
    ),
    "twice the same": ("\n".join([json.dumps(OWN[0])] * 2), "mine.jsonl:2 asks the same as"),
    "an id twice": (json.dumps(OWN[0]) + "\n" + json.dumps({**OWN[0], "text": TEXT * 2}), "mine.jsonl:2 has the id"),
    "no such kind": ('\n{"kind": "quiz"}', "mine.jsonl:2 is no probe: its kind is 'quiz'"),
    "not UTF-8": (b'{"kind": "text", "text": "\xff\xfe"}', "mine.jsonl:1 is no probe"),
    "UTF-16": (json.dumps(OWN[0]).encode("utf-16"), "mine.jsonl:1 is no probe"),
    "a huge line": (json.dumps(OWN[0]) + "\n" + "x" * 10_000_000, "mine.jsonl:2 is no probe: it has 10000000 bytes"),
    "empty": ("\n \n", "mine.jsonl has no probe in it"),
    "one that comes with apollod": (SHIPPED_LINE, "mine.jsonl:1 asks the same as apollod/data/probes.jsonl:1"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_clear_line_also_at_a_run(text: str | bytes, said: str, own: Path) -> None:
    own.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"^\[quality\] probe") as refused:
        probes_of(config(own))
    assert said in str(refused.value) and "\n" not in refused.value.line() and refused.value.hint
    found = ask(own, Model({}))
    assert isinstance(found, inp.ProbesFailed) and found.reason == refused.value.line()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_large_file(path: Path) -> None:
    path.touch()
    os.truncate(path, BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (Path.mkdir, "cannot be read: Is a directory"),
        (a_pipe, "is no file (its mode is p"),
        (a_large_file, "more than"),
        (lambda path: path.symlink_to(path.name), "cannot be read: "),
    ],
    ids=["missing", "directory", "pipe", "large", "circle"],
)
def test_what_is_no_file_of_probes_is_named_and_not_waited_for(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.jsonl"
    make(path)
    with pytest.raises(ConfigError) as refused:
        probes_of(config(path))
    line = refused.value.line()
    assert line.startswith(f"[quality] probe {path} ") and said in line and refused.value.hint
    found = ask(path, Model({}))
    assert isinstance(found, inp.ProbesFailed) and found.reason == line


@needs_root
def test_a_file_that_one_may_not_read_is_named() -> None:
    with open_place() as place:
        path = place / "secret.jsonl"
        path.write_text(json.dumps(OWN[0]))
        path.chmod(0o600)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(ConfigError, match=r"secret.jsonl cannot be read: Permission denied"):
                probes_of(config(path))
        finally:
            os.seteuid(0)


def test_a_mark_of_the_byte_order_is_no_error_and_a_file_is_named_once(own: Path) -> None:
    before = digest(probes_of(config(own)))
    own.write_bytes(b"\xef\xbb\xbf" + own.read_bytes())
    assert digest(probes_of(config(own))) == before
    twice = load_config(None, ["model.path=/m", f'quality.probe=["{own}", "{own}"]'], {})
    with pytest.raises(ConfigError, match=r"\[quality\] probe names .*mine.jsonl twice"):
        probes_of(twice)
    for name in ("a\0b", "~nobody-has-this-name/p.jsonl"):
        named = load_config(None, ["model.path=/m", f"quality.probe={json.dumps([name])}"], {})
        with pytest.raises(ConfigError, match=r"\[quality\] probe .* is no path"):
            probes_of(named)


def test_two_files_with_one_probe_are_both_named(own: Path) -> None:
    other = own.with_name("other.jsonl")
    other.write_text("\n" + json.dumps({**OWN[0], "id": "again"}))
    both = load_config(None, ["model.path=/m", f'quality.probe=["{own}", "{other}"]'], {})
    with pytest.raises(ConfigError, match=r"other.jsonl:2 asks the same as .*mine.jsonl:1"):
        probes_of(both)


def test_a_bad_file_is_found_by_the_check_and_keeps_the_daemon_from_starting(
    own: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    settings = [f"model.path={tiny_model}", f"state.dir={state}", f'quality.probe=["{own}"]']
    check = ["config", "check", *(part for one in settings for part in ("--set", one))]
    assert main(check) == 0
    own.write_text("{")
    capsys.readouterr()
    assert main(check) == 1
    assert "mine.jsonl:1 is no probe" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"mine.jsonl:1 is no probe"):
        anyio.run(app.run, load_config(None, settings, {}))
    assert not state.exists()
