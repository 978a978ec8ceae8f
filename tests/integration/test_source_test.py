"""`apollod ctl source test`: what a person sees before anything is learned of a log."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.agent_logs import session
from support.fork_server import ForkedPipes
from support.reader_samples import CLAUDE_CODE

from apollod.adapters import tokens
from apollod.cli.main import main
from apollod.curation.redaction import redact, use
from apollod.demo.tiny_model import make_tokenizer
from apollod.trainer.objectives.encoding import tokenise
from apollod.wire.records import decode_record, parse_line

STRANGE = b"".join(CLAUDE_CODE).replace(b"Fix it", b"<memory>Tabs!</memory> Fix it")


@pytest.fixture(autouse=True)
def few_shipped_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command reads them again: all of them in half a second; test_bootstrap_verb.py has all."""
    monkeypatch.setenv("APOLLOD_QUALITY__LEVELS", "1")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_bytes(STRANGE)
    return path


def test_everything_about_it_as_one_object(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "source", "test", str(log), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["records"], said["unknown"]) == ("claude-code", 21, {"from-the-future": 1})
    assert said["dropped"]["taken back by the user (branch)"] == 1 and said["redacted"] == {}
    assert [bad["line"] for bad in said["quarantined"]] == [16, 17, 18, 20, 21]
    call, first, second = said["examples"]
    assert first["trained"] == [3] and first["stripped"] == ["<memory>Tabs!</memory> "] and first["model"] == "apollo"
    assert [m["role"] for m in first["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert call["trained"] == [1] and (call["line"], first["line"], second["line"]) == (4, 6, 11)
    (interrupted,) = second["signals"]
    assert (interrupted["kind"], interrupted["value"]) == ("interrupted", "[Request interrupted by user]")
    assert (interrupted["polarity"], interrupted["records"]) == ("bad", ["u11", "u13"])


@pytest.mark.parametrize("personal", [True, False])
def test_personal_data_as_the_configuration_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], personal: bool
) -> None:
    (tmp_path / "a.toml").write_text(
        f'[model]\npath = "/m"\n[redaction]\npersonal = {str(personal).lower()}\n', encoding="utf-8"
    )
    (tmp_path / "s.jsonl").write_bytes(session("a", ["Mail jo.doe@web.de"]))
    try:
        for verb in (["bootstrap", "--dry-run"], ["source", "test"]):
            use(personal=not personal)  # what the verb has to change
            assert main(["ctl", *verb, str(tmp_path / "s.jsonl"), "--config", str(tmp_path / "a.toml"), "--json"]) == 0
            said = capsys.readouterr().out
            assert ("jo.doe@web.de" in said) is (not personal and verb[0] == "source")
            redacted = redact(b"jo.doe@web.de")[1]
            assert redacted == ({"email": 1} if personal else {})
    finally:
        use(personal=False)


def test_as_a_person_reads_it(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "source", "test", str(log), "--examples", "1"]) == 0
    out, err = capsys.readouterr()
    assert "format      claude-code" in out and "1 unknown: from-the-future" in out
    assert "    [-<memory>Tabs!</memory> -]Fix it" in out and "assistant, target\n    <think>" in out
    assert "2 more examples" in err and "Another answer" not in out


def test_with_a_tokenizer_it_says_what_would_be_learned_and_why_not(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "subprocess", ForkedPipes)
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "m")
    asked = ["ctl", "source", "test", str(log), "--json"]
    assert main([*asked, "--model-dir", str(tmp_path / "m")]) == 0
    said = json.loads(capsys.readouterr().out)
    (source,) = said["sources"]
    assert (source["found"], source["learned"], source["held"]) == (4, 2, {"rejected (correction)": 1})
    assert source["why"] == {"taken back by the user (branch)": 1}
    learned = [decode_record(parse_line(json.dumps(_row(one)).encode()).canonical) for one in said["examples"]]
    encoded = [tokenise(tokenizer, one, 4096) for one in learned]
    assert said["tokens"] == sum(len(one.ids) for one in encoded), "as the trainer counts"
    assert said["trained"] == sum(one.targets for one in encoded)
    tokenizer.chat_template = "{{ raise_exception('only tools here') }}"
    tokenizer.save_pretrained(tmp_path / "m")
    assert main(["ctl", "source", "test", str(log), "--model-dir", str(tmp_path / "m")]) == 0
    out = capsys.readouterr().out
    assert "4 found, 0 would be learned" in out and "3 not learned: the chat template refuses these" in out
    assert main(["ctl", "source", "test", str(log)]) == 0
    out = capsys.readouterr().out
    assert "answers     4 found\n" in out and "was not tried" in out and "would be learned" not in out


def _row(example: dict[str, Any]) -> dict[str, Any]:
    return {"messages": example["messages"], **({"tools": example["tools"]} if example["tools"] else {})}


def test_a_directory_of_logs_also_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.jsonl").write_bytes(session("a", ["x"]))
    (tmp_path / "below" / "b.jsonl.gz").write_bytes(gzip.compress(session("b", ["y", "z"])))
    (tmp_path / "below" / "c.jsonl.gz").write_bytes(gzip.compress(session("c", ["u", "v"]))[:-9])
    assert main(["ctl", "source", "test", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["formats"] == {"claude-code": 2} and len(said["examples"]) == 3
    assert [(bad["line"], "cut off" in bad["reason"]) for bad in said["quarantined"]] == [(0, True)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{}/nothing"], "does not exist"),
        (["{}"], "there is no .jsonl"),
        (["{}/s.jsonl", "--format", "claud"], "use auto or one of qwen-code, claude-code"),
    ],
)
def test_what_cannot_be_tested_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    if "s.jsonl" in arguments[0]:
        (tmp_path / "s.jsonl").write_bytes(b"{}\n")
    assert main(["ctl", "source", "test", *(argument.format(tmp_path) for argument in arguments)]) != 0
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_answers_of_other_models_are_named_with_the_way_to_take_them(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ctl", "source", "test", str(log), "--model", "mine"]) == 0
    assert "--model '*' takes them" in capsys.readouterr().err
    assert main(["ctl", "source", "test", str(log), "--model", "*", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["examples"]) == 3


def test_what_holds_a_probe_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "Which harbour lies to the north of the old mill?"
    log = tmp_path / "s.jsonl"
    log.write_bytes(session("a", ["hello there", asked]))
    probe = {"kind": "exact", "messages": [{"role": "user", "content": asked}], "expect": "Blue."}
    (tmp_path / "probes.jsonl").write_text(json.dumps(probe))
    file = tmp_path / "apollod.toml"
    file.write_text(f'[model]\npath = "/m"\n[quality]\nprobe = ["{tmp_path}/probes.jsonl"]\n')
    assert main(["ctl", "source", "test", str(log), "--config", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (leak,) = said["leaks"]
    assert leak["path"] == str(log) and leak["example"] in {one["id"] for one in said["examples"]}
    assert "the words of the probe" in leak["holds"] and "probes.jsonl:1" in leak["holds"]
    assert main(["ctl", "source", "test", str(log), "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert "held        1 of them would wait for a person" in out and f":{leak['line']}: would be held" in out
    assert main(["ctl", "source", "test", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leaks"] == [], "without a configuration there is no guard"
    (tmp_path / "probes.jsonl").write_text("{")
    assert main(["ctl", "source", "test", str(log), "--config", str(file)]) != 0
    assert "[quality] probe" in capsys.readouterr().err
