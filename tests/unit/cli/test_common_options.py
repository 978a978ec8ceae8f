"""--config, --socket and --json stand before or after the verb; a flag that nobody knows is answered by its verb."""

from itertools import product

import pytest

from apollod.cli.main import build_parser, main

GIVEN = ["--config", "c.toml", "--socket", "s", "--json"]
WORDS = (["status"], ["pause"], ["submit", "f"], ["query", "SELECT 1"], ["example", "list"], ["source", "list"])


@pytest.fixture(autouse=True)
def another_daemon_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APOLLOD_CONFIG", "env.toml")


@pytest.mark.parametrize(
    ("words", "place"), [(words, place) for words, place in product(WORDS, range(3)) if place <= len(words)]
)
def test_the_common_options_stand_at_any_place(words: list[str], place: int) -> None:
    args = build_parser().parse_args(["ctl", *words[:place], *GIVEN, *words[place:]])
    assert (args.config, args.socket, args.json) == ("c.toml", "s", True)


@pytest.mark.parametrize("words", WORDS)
def test_they_stand_at_several_places_at_once_and_the_last_one_counts(words: list[str]) -> None:
    args = build_parser().parse_args(["ctl", "--config", "a", "--json", *words, "--config", "b"])
    assert (args.config, args.socket, args.json) == ("b", None, True)


@pytest.mark.parametrize("words", WORDS)
def test_what_is_not_given_is_what_the_environment_says_or_nothing(words: list[str]) -> None:
    args = build_parser().parse_args(["ctl", *words])
    assert (args.config, args.socket, args.json) == ("env.toml", None, False)


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("ctl pause --now", "apollod ctl pause"), ("ctl example list --all", "apollod ctl example list"),
        ("ctl --bogus status", "apollod ctl"), ("config check --fast", "apollod config check"),
        ("version --fast", "apollod version"), ("--bogus version", "apollod"),
    ],
)  # fmt: skip
def test_an_unknown_flag_is_answered_with_the_usage_of_its_verb(
    words: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.startswith(f"usage: {usage} [-h]")
    flag = next(word for word in words.split() if word.startswith("--"))
    assert told.endswith(f"{usage}: error: unrecognized arguments: {flag}\n")
