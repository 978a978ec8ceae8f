"""Vocabularies of tokenizers, and how they differ."""

import json
from pathlib import Path
from typing import Any

import pytest

from apollod.adapters.tokens import difference, vocabulary_of
from apollod.errors import ConfigError


def tokenizer(directory: Path, vocab: Any, *added: tuple[int, str], merges: Any = ()) -> Path:
    directory.mkdir(exist_ok=True)
    more = [{"id": id_, "content": content} for id_, content in added]
    read = {"model": {"vocab": vocab, "merges": list(merges)}, "added_tokens": more}
    (directory / "tokenizer.json").write_text(json.dumps(read))
    return directory


def test_equal_tables_have_one_digest_however_they_are_written(tmp_path: Path) -> None:
    one = tokenizer(tmp_path / "a", {"b": 1, "a": 0}, (2, "<end>"), merges=["a b"])
    other = tokenizer(tmp_path / "b", {"a": 0, "b": 1, "<end>": 2})
    listed = tokenizer(tmp_path / "c", [["a", -1.0], ["b", -2.0]], (2, "<end>"))
    found = [vocabulary_of(each) for each in (one, other, listed)]
    assert len({each.digest for each in found}) == 1 and not difference(found[0], found[2])


@pytest.mark.parametrize(
    ("vocab", "said"),
    [
        ({"a": 0, "c": 1}, "2 and 2 tokens; token 1 is 'b' and 'c'"),
        ({"a": 0, "b": 1, "d": 2}, "2 and 3 tokens; token 2 is nothing and 'd'"),
        ({"a": 0}, "2 and 1 tokens; token 1 is 'b' and nothing"),
    ],
)
def test_the_first_difference_is_told(tmp_path: Path, vocab: dict[str, int], said: str) -> None:
    ours = vocabulary_of(tokenizer(tmp_path / "a", {"a": 0, "b": 1}))
    assert difference(ours, vocabulary_of(tokenizer(tmp_path / "b", vocab))) == said


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"model": {"vocab": 3}}', "[" * 10_000])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ConfigError, match="is no tokenizer"):
        vocabulary_of(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        vocabulary_of(tmp_path / "nowhere")
