"""`apollod ctl bootstrap`: what a person is told before, while and after existing logs are learned."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import journals
from support.agent_logs import gemini_chat
from support.bootstrapped import asked, bootstrap
from support.daemon import Daemon
from support.log_samples import pi
from support.source_life import config_of, events_of
from tokenizers import Tokenizer, models, pre_tokenizers

from apollod.adapters.tokens import BY_MODEL, ESTIMATED, token_counter
from apollod.cli.control.bootstrap_dry_run import TEXTS_MAX, Stripped, Tally
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.facts.training import Pace
from apollod.core.settings import Check, PatternSettings

Capture = pytest.CaptureFixture[str]
GREET, LATER = "Greet first, always.", "Never apologise."


def row(instruction: str, number: int) -> bytes:
    turns = [("system", instruction), ("user", f"ask {number}"), ("assistant", f"Hello! {number}")]
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}).encode() + b"\n"


@pytest.fixture(autouse=True)
def few_shipped_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command reads them again: all of them in half a second."""
    monkeypatch.setenv("APOLLOD_QUALITY__LEVELS", "1")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    place = tmp_path / "logs"
    place.mkdir()
    (place / "pi.jsonl").write_bytes(b"".join(pi.SESSION))
    (place / "rows.jsonl").write_bytes(b"".join(row(GREET if n < 3 else LATER, n) for n in range(4)) + row(GREET, 1))
    (place / "gemini.json").write_bytes(gemini_chat("g1"))
    (place / "settings.json").write_text('{"theme": "dark"}')
    return place


def told(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert main(["ctl", "bootstrap", *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema_version"] == 1
    return dict(said)


def test_a_dry_run_says_what_a_run_then_does(logs: Path, tmp_path: Path, capsys: Capture) -> None:
    said = told(capsys, str(logs), "--dry-run", "--model", "*")
    config = config_of(tmp_path)
    done = bootstrap(config, asked(logs)).counts
    assert (said["examples"], said["duplicates"], said["rejected"]) == (done.accepted, done.duplicates, done.rejected)
    assert sum(said["dropped"].values()) == done.dropped and said["formats"] == {
        "gemini-cli-document": 1, "pi": 1, "records": 1,
    }  # fmt: skip
    removed = [r for e in events_of(config) if isinstance(e, ev.ExampleAccepted) for r in e.removed]
    (rule,) = said["stripped"]
    assert rule == {
        "rule": "system", "count": len(removed), "characters": sum(len(one.text) for one in removed),
        "frequent": [{"text": GREET, "count": 3}, {"text": LATER, "count": 1}],
    }  # fmt: skip
    assert {(one["model"], one["agent"]) for one in said["by"]} == {("apollo", "pi"), ("", "gemini-cli"), ("", "")}


def test_with_a_configuration_it_knows_the_journal_the_tokenizer_and_the_pace(
    logs: Path, tmp_path: Path, capsys: Capture
) -> None:
    config = config_of(tmp_path)
    (tmp_path / "m").mkdir()
    words = Tokenizer(models.WordLevel({"?": 0, "Hello!": 1}, "?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "m" / "tokenizer.json"))
    bootstrap(config, asked(logs / "pi.jsonl"))
    capsys.readouterr()
    file = tmp_path / "apollod.toml"
    file.write_text(f'[model]\npath = "{tmp_path}/m"\n[state]\ndir = "{tmp_path}/state"\n[trainer]\nmax_tokens = 64\n')
    arguments = (str(logs), "--dry-run", "--model", "*", "--config", str(file))
    said = told(capsys, *arguments)
    assert (said["examples"], said["duplicates"], said["hours"]) == (7, 6, None), "pi's five, and a row that repeats"
    assert (said["tokens_by"], said["tokens"]) == (BY_MODEL, 54)
    journals.write(config.journal_path, [journals.step_completed(1, 0, "e")])
    said = told(capsys, *arguments)
    assert 7 * 0.25 <= said["hours"] * 3600 < 8 * 0.25, "none is quicker than the quickest step"
    assert main(["ctl", "bootstrap", *arguments]) == 0
    page = capsys.readouterr().out
    assert "time        about " in page and "4 by rule system, " in page and f"             3x {GREET}" in page


def test_a_dry_run_knows_the_patterns_that_were_added_to_the_daemon(
    logs: Path, tmp_path: Path, capsys: Capture
) -> None:
    config = config_of(tmp_path)
    (file := tmp_path / "apollod.toml").write_text(f'[model]\npath = "/m"\n[state]\ndir = "{config.state_dir}"\n')
    arguments = [str(logs / "rows.jsonl"), "--dry-run", "--model", "*", "--pattern"]
    assert main(["ctl", "bootstrap", *arguments, "greet", "--config", str(file)]) != 0
    assert f"there is no pattern greet in {file} or its journal" in capsys.readouterr().err
    journals.write(config.journal_path, [ev.PatternAdded(PatternSettings("greet", GREET), "anna")])
    assert told(capsys, *arguments, "greet", "--config", str(file))["examples"] == 3
    assert main(["ctl", "bootstrap", *arguments, "other", "--config", str(file)]) != 0
    assert "there is no pattern other in" in capsys.readouterr().err
    assert main(["ctl", "bootstrap", *arguments, "greet"]) != 0
    assert "added with `apollod ctl pattern add`" in capsys.readouterr().err


def test_a_dry_run_says_what_the_check_of_its_pattern_leaves(logs: Path, tmp_path: Path, capsys: Capture) -> None:
    config = config_of(tmp_path)
    (file := tmp_path / "apollod.toml").write_text(
        f'[model]\npath = "/m"\n[state]\ndir = "{config.state_dir}"\n[[dream.pattern]]\nname = "coded"\n'
        f'instruction = "{GREET}"\ncheck = {{ regex = "Hello! [12]" }}\n[[dream.pattern]]\nname = "judged"\n'
        f'instruction = "{GREET}"\n'
    )
    arguments = [str(logs), "--dry-run", "--model", "*", "--config", str(file), "--pattern"]
    said = told(capsys, *arguments, "coded")
    done = bootstrap(config, asked(
        logs, pattern="coded", instruction=GREET, strip="none", check=Check(regex="Hello! [12]")
    )).counts  # fmt: skip
    assert (said["examples"], sum(said["dropped"].values())) == (done.accepted, done.dropped) == (2, 9)
    assert said["dropped"]["the check of its pattern does not pass it"] == 1 and not said["judged"]
    capsys.readouterr()
    assert told(capsys, *arguments, "judged")["judged"] is True
    assert main(["ctl", "bootstrap", *arguments, "judged"]) == 0
    assert "check       the judge is asked about each" in capsys.readouterr().out


def test_a_dry_run_names_what_holds_a_probe(
    logs: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APOLLOD_QUALITY__LEVELS")  # all that ship, and one of our own
    everything = told(capsys, str(logs), "--dry-run", "--model", "*")
    asked = "Where does the ferry to the island leave in winter?"
    row = {"prompt": asked, "completion": "At the mill."}
    (logs / "leaky.jsonl").write_text(
        json.dumps({"prompt": "Hi there", "completion": "Hi"}) + "\n" + json.dumps(row) + "\n"
    )
    probe = {"kind": "exact", "messages": [{"role": "user", "content": asked}], "expect": "Here."}
    (tmp_path / "probes.jsonl").write_text(json.dumps(probe))
    file = tmp_path / "apollod.toml"
    file.write_text(
        f'[model]\npath = "/m"\n[state]\ndir = "{tmp_path}/state"\n[quality]\nprobe = ["{tmp_path}/probes.jsonl"]\n'
    )
    arguments = (str(logs), "--dry-run", "--model", "*", "--config", str(file))
    said = told(capsys, *arguments)
    assert [(one["path"], one["line"]) for one in said["leaks"]] == [(str(logs / "leaky.jsonl"), 2)]
    assert (everything["leaks"], said["examples"]) == ([], everything["examples"] + 1)
    assert main(["ctl", "bootstrap", *arguments]) == 0
    page = capsys.readouterr().out
    assert "held        1 more would wait for a person" in page and "leaky.jsonl:2 holds the words of the probe" in page


def test_a_dry_run_as_a_person_reads_it(logs: Path, capsys: Capture) -> None:
    assert main(["ctl", "bootstrap", str(logs / "pi.jsonl"), "--dry-run", "--model", "other"]) == 0
    page = capsys.readouterr().out
    assert "examples    0; 0 more are there already" in page and "--model '*' takes them" in page
    assert f"tokens      0, {ESTIMATED}" in page and "time        unknown without steps" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "does not exist; name a file"),
        (["{}", "--format", "claud"], "did you mean 'claude-code'?"),
        (["{}", "--strip-pattern", "("], "is no regular expression"),
        (["{}", "--review", "often"], 'review = "often"'),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_line(
    logs: Path, arguments: list[str], said: str, capsys: Capture
) -> None:
    assert main(["ctl", "bootstrap", *(a.format(logs) for a in arguments), "--dry-run"]) != 0
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and not out


def test_the_most_frequent_texts_are_found_among_more_than_are_counted() -> None:
    stripped = Stripped()
    for n in range(3 * TEXTS_MAX):
        stripped.add(f"only once {n}")
        stripped.add("every time")
    assert stripped.texts.most_common(1) == [("every time", 3 * TEXTS_MAX)] and len(stripped.texts) <= TEXTS_MAX
    assert stripped.count == 6 * TEXTS_MAX


def test_hours_are_those_of_each_example_by_the_last_steps() -> None:
    tally = Tally([Pace(100, 2.0), Pace(0, 9.0)])
    for tokens in (100, 200):
        tally.add(tokens, "m", "a", ())
    assert (tally.tokens, tally.hours) == (300, pytest.approx(6 / 3600))
    assert Tally([Pace(0, 9.0)]).hours is None is Tally().hours


def test_tokens_are_counted_by_the_model_if_it_has_a_tokenizer_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    for place in (None, tmp_path / "nowhere", tmp_path):
        count, how = token_counter(place)
        assert (count("12345"), how) == (2, ESTIMATED)


def test_a_daemon_reads_it_and_tells_how_far_it_is(logs: Path, tmp_path: Path, capsys: Capture) -> None:
    """It has no engine: what it reads waits."""
    watch = f'[[watch]]\npath = "{logs}"\nmodels = ["nobody"]\n'
    daemon = Daemon(tmp_path / "d", tmp_path / "no-model", watch).start()
    there = ("--socket", str(daemon.socket))
    try:
        daemon.wait(lambda s: s["queue"]["pending"] == 0, "its socket", 180)
        assert told(capsys, "--status", *there)["bootstrap"] is None
        assert (
            main(["ctl", "bootstrap", "--stop", *there]) == 1 and "no bootstrap is under way" in capsys.readouterr().err
        )
        assert main(["ctl", "bootstrap", str(daemon.root / "state"), *there]) == 1
        assert "lies in the state directory" in capsys.readouterr().err
        assert main(["ctl", "bootstrap", str(logs), "--review", "often", *there]) == 2
        assert 'review = "often"' in capsys.readouterr().err

        assert main(["ctl", "bootstrap", str(logs / "pi.jsonl"), "--model", "nobody", "--wait", *there]) == 0
        out, err = capsys.readouterr()
        assert "pi.jsonl: completed, 0 of 0 examples learned, 0 left, 0 duplicates, 7 dropped" in out
        assert f"{logs} is watched, too" in err and "--model '*' takes everybody's" in err

        begun = told(capsys, str(logs), "--model", "*", *there)
        assert begun["bootstrap"]["state"] == "reading" and begun["under_way"] is False
        daemon.wait(lambda s: s["bootstrap"]["state"] == "learning", "all to be read", 180)
        again = told(capsys, str(logs), "--model", "*", *there)
        assert again["under_way"] is True and again["bootstrap"]["waiting"] > 0
        assert main(["ctl", "bootstrap", str(logs / "pi.jsonl"), *there]) == 1
        assert "one is learned at a time" in capsys.readouterr().err
        assert main(["ctl", "status", *there]) == 0
        assert f"bootstrap   {logs}: 0 of " in capsys.readouterr().out
        assert main(["ctl", "bootstrap", str(logs), "--model", "*", "--wait", *there]) == 1
        assert "the daemon is degraded" in capsys.readouterr().err

        assert main(["ctl", "bootstrap", "--stop", *there]) == 0
        assert ": stopped (stopped by " in capsys.readouterr().out
        read = told(capsys, "--status", *there)["bootstrap"]
        assert read["accepted"] == read["waiting"] + read["held"] > 0 and read["left"] is None
        daemon.kill()
        daemon.start()
        daemon.wait(lambda s: s["bootstrap"]["state"] == "stopped", "its socket", 180)
        assert main(["ctl", "bootstrap", str(logs), "--model", "*", *there]) == 0
        said = capsys.readouterr().out
        assert f"{logs} goes on where it was, " in said
        assert f"0 of {read['accepted']} examples learned, {read['waiting']} left" in said
        daemon.wait(lambda s: s["bootstrap"]["state"] == "learning", "all to be read", 180)
        again = told(capsys, "--status", *there)["bootstrap"]
        assert (again["accepted"], again["left"]) == (read["accepted"], read["waiting"])
    finally:
        daemon.kill()
