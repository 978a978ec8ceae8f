"""`apollod ctl example show ID --mask` on the journal of a real daemon (tests/golden): the tokens that it learned."""

import json
import shutil
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.journals import STORY, A, write
from support.teachers import made_up

from apollod.adapters.journal import blobs
from apollod.cli.control.examples import example_text
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.settings import TrainerSettings
from apollod.demo.tiny_model import make_tokenizer
from apollod.trainer.objectives.encoding import tokenise
from apollod.trainer.token_texts import shown, texts_of
from apollod.wire.records import decode_record, parse_line
from apollod.wire.teacher import digest_of, write_teacher

GOLDEN = Path(__file__).parents[1] / "golden" / "v0.1.0.db"
STONE = "5a933e095400f62150149c296b7a283c"
ANSWER = "Stone number 1 is red.<|im_end|>"
base = make_tokenizer()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer with which that daemon learned; no weights are needed."""
    path = tmp_path_factory.mktemp("model")
    make_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN, tmp_path / "journal.db"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code without a process of its own."""
    monkeypatch.setattr(example_text, "tokens_of", shown)


def asked(journal: Path, model: Path, *more: str) -> list[str]:
    return ["ctl", "example", "show", STONE, "--mask", "--file", str(journal), "--model-dir", str(model), *more]


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    told = json.loads(capsys.readouterr().out)
    assert told["schema_version"] == 1
    return dict(told["example"])


def test_the_tokens_are_those_that_were_learned(journal: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the process that a person's command starts."""
    assert main(asked(journal, model, "--json")) == 0
    told = answer(capsys)
    assert (told["same"], told["tokens"], told["trained"], told["cut"]) == (True, 38, 14, 0)
    data = b"".join(token.to_bytes(4, "little") for token in told["ids"]) + bytes(told["mask"])
    assert blake2b(data, digest_size=16).hexdigest() == told["digest"] == told["recorded_digest"]
    learned = [text for text, mask in zip(told["texts"], told["mask"], strict=True) if mask]
    assert "".join(learned) == ANSWER and told["share"] == 14 / 38


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("no_colour", ["", "1"])
def test_what_is_learned_is_coloured_or_in_brackets(
    journal: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_colour: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(asked(journal, model)) == 0
    out, err = capsys.readouterr()
    assert "tokens      38, 14 of them trained (36.8 %)\n" in out and "(as recorded)\n" in out and not err
    marked = f"[[{ANSWER}]]" if no_colour else f"\x1b[1;32m{ANSWER}\x1b[0m"
    assert f"    <|im_start|>assistant\n    {marked}" in out and ("\x1b" in out) == (not no_colour)


@pytest.mark.usefixtures("here")
def test_other_tokens_than_those_that_were_learned_are_said_loudly(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = make_tokenizer()
    changed.chat_template = changed.chat_template.replace("message.role }}", "message.role }} ")
    changed.save_pretrained(tmp_path / "changed")
    assert main(asked(journal, tmp_path / "changed")) == 1
    out, err = capsys.readouterr()
    assert "THESE ARE NOT THE TOKENS THAT WERE LEARNED" in err and "(as recorded)" not in out
    assert main(asked(journal, tmp_path / "changed", "--json")) == 1
    told = answer(capsys)
    assert told["same"] is False and told["digest"] != told["recorded_digest"]


@pytest.mark.usefixtures("here")
def test_a_template_that_does_not_teach_when_to_stop_is_named_with_the_mask(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = make_tokenizer()
    changed.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    changed.save_pretrained(tmp_path / "changed")
    assert main(asked(journal, tmp_path / "changed")) == 1
    assert "do not teach when to stop" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_where_there_is_no_tokenizer_a_way_out_is_said(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = write(tmp_path / "story.db", STORY)
    assert main(["ctl", "example", "show", A, "--mask", "--file", str(story)]) == 1
    assert "does not say with which model" in capsys.readouterr().err
    assert main(asked(journal, tmp_path / "nothing")) == 1
    told = capsys.readouterr().err
    assert "no tokenizer that loads" in told and "--model-dir" in told


@given(some.text(max_size=40))
def test_the_texts_of_tokens_are_the_text(text: str) -> None:
    ids = base(text, add_special_tokens=False)["input_ids"]
    texts = texts_of(base, ids)
    assert len(texts) == len(ids) and "".join(texts) == base.decode(ids)


def test_a_letter_of_several_tokens_is_the_text_of_its_last() -> None:
    ids = base("é🦦!", add_special_tokens=False)["input_ids"]
    texts = texts_of(base, ids)
    assert [text for text in texts if text] == ["é", "🦦", "!"] and len(texts) > 3


@pytest.mark.usefixtures("here")
def test_an_answer_that_is_learned_from_a_teacher_is_shown_with_it(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And refused, as the trainer refuses it, while its file is missing."""
    record = parse_line(b'{"prompt": "the harbour master keeps", "completion": " three books."}').canonical
    tokens = tokenise(base, decode_record(record), 1000)
    blob = write_teacher(made_up([id_ for id_, learned in zip(tokens.ids, tokens.mask, strict=True) if learned], 800))
    started = ev.DaemonStarted(1, "0", ev.Settings(model_path=str(model), trainer=TrainerSettings()))
    accepted = ev.ExampleAccepted(STONE, msgspec.Raw(record), "dream:d1", 1, teacher=digest_of(blob))
    journal = write(tmp_path / "journal.db", [started, accepted])
    assert main(asked(journal, model)) == 1
    assert f"its teacher {accepted.teacher} is not there" in capsys.readouterr().err
    blobs.keep(tmp_path / "blobs", blob)
    assert main(asked(journal, model, "--json")) == 0
    told = answer(capsys)
    assert (told["objective"], told["trained"], told["same"]) == ("context", tokens.targets, None)
    assert told["digest"] != tokens.digest()
