"""Rules in the format of gitleaks mean here what they mean there, and work on texts that are escaped."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.curation.redaction import _ESCAPE, _in_record, _read, redact
from apollod.curation.secret_rules import Rules, Span, shipped

KEY = "ghp_" + "aB3dE5fG7h" * 3 + "q1W2e3"
HEX = "9f86d081884c7d659a2feaa0c55ad015"


def found(text: str, *rules: dict[str, object], **table: object) -> list[str]:
    """What rules find; each has an id of its own, `r0` and so on."""
    named = [{"id": f"r{number}", **rule} for number, rule in enumerate(rules)]
    return [text[begin:end] for begin, end, _ in Rules([{"rules": named, **table}]).spans(text.encode())]


def test_the_secret_is_the_group_that_is_named_or_the_first_that_took_part_or_all() -> None:
    assert found("a=12 b=34", {"regex": r"[a-z]=[0-9]+"}) == ["a=12", "b=34"]
    assert found("a=12 b=34", {"regex": r"a=([0-9]+)|b=([0-9]+)"}) == ["12", "34"]
    assert found("a=12", {"regex": r"([a-z])=([0-9]+)", "secretGroup": 2}) == ["12"]


def test_a_rule_is_tried_only_where_one_of_its_words_stands_in_any_case() -> None:
    assert found("id 12", {"regex": "[0-9]+", "keywords": ["key"]}) == []
    assert found("KEY 12", {"regex": "[0-9]+", "keywords": ["key", "token"]}) == ["12"]


def test_what_is_too_regular_or_allowed_is_no_secret() -> None:
    rule = {"regex": r"key=(\w+)"}
    assert found("key=aaaabbbb", {**rule, "entropy": 1.0}) == [], "an entropy of 1 is not more than 1"
    assert found("key=aaaabbbc", {**rule, "entropy": 1.0}) == ["aaaabbbc"]
    for allowed in (
        {"regexes": ["^ab"]},
        {"regexTarget": "match", "regexes": ["^key=a"]},
        {"regexTarget": "line", "regexes": ["^line"]},
        {"stopwords": ["AB1"]},
        {"condition": "OR", "stopwords": ["b12"], "regexes": ["never"]},
    ):
        assert found("line key=ab12\nnext key=xy34", {**rule, "allowlists": [allowed]}) == ["xy34"], allowed
    assert found("key=ab12", {**rule, "allowlists": [{"condition": "AND", "paths": ["x"], "regexes": ["ab"]}]})
    assert found("key=ab12", rule, allowlist={"regexes": ["ab"]}) == []
    assert found("key=ab12", rule, allowlists=[{"targetRules": ["r0"], "regexes": ["ab"]}]) == []
    assert found("key=ab12", rule, allowlists=[{"targetRules": ["other"], "regexes": ["ab"]}]) == ["ab12"]


def test_rules_for_files_of_certain_names_and_disabled_ones_are_left_out() -> None:
    assert found("12", {"regex": "[0-9]+", "path": r"\.nuget$"}) == []
    assert found("12", {"regex": "[0-9]+"}, extend={"disabledRules": ["r0"]}) == []


def test_where_rules_meet_one_that_knows_the_key_counts_first_and_what_is_longer_is_taken_whole() -> None:
    general, known = {"id": "g", "regex": r"k=(\S+)", "tags": ["general"]}, {"id": "k", "regex": "ab[0-9]{2}"}
    rules = Rules([{"rules": [general, known]}])
    assert rules.spans(b"k=ab12") == [Span(2, 6, "k")]
    assert rules.spans(b"k=zz") == [Span(2, 4, "secret")]
    assert rules.spans(b"k=ab12-rest-of-it") == [Span(2, 17, "k")], "eight bytes more are of the secret"
    assert rules.spans(b"k=ab12;") == [Span(2, 6, "k")], "one more is not"
    also = {"id": "also", "regex": "=(z[^;]+)", "tags": ["general"]}
    assert Rules([{"rules": [{**general, "regex": r"k=(\w+)"}, also]}]).spans(b"k=zz&y;") == [Span(2, 6, "secret")]


def test_the_shipped_rules_are_many_and_each_has_words_or_is_meant_to_have_none() -> None:
    rules = shipped().rules
    assert len(rules) > 230
    assert sum(not rule.words for rule in rules) <= 2, "what has no words is tried on every text"


BEFORE = st.sampled_from(["", "\n", "\t", 'say "', "\\ ", "C:\\temp ", "\u2192", "\x1b[32m", "<", "1\u2192"])
BEHIND = st.sampled_from(["", "\n", '"', "\\n", "\x1b[0m", ", and", ")", "&x=1", "</a>"])


@given(
    BEFORE, BEHIND, st.sampled_from([KEY, f"token = {HEX}", f'"api_key": "{HEX}"']), st.integers(0, 3), st.booleans()
)
def test_json_in_json_stays_json_and_has_no_secret(
    before: str, behind: str, secret: str, depth: int, asc: bool
) -> None:
    text = before + secret + behind
    for _ in range(depth + 1):
        text = json.dumps({"text": text, "id": "7"}, ensure_ascii=asc)
    clean = redact(text.encode())[0].decode()
    for _ in range(depth + 1):
        read = json.loads(clean)
        assert read["id"] == "7"
        clean = read["text"]
    assert KEY[4:12] not in clean and HEX[:8] not in clean and "[redacted " in clean
    assert clean.startswith(before)


@pytest.mark.parametrize("mark", ["\\u003d", "\\u0026", "\\/", "\\b", "\\\\"])
def test_no_escape_is_cut_in_two(mark: str) -> None:
    line = f'{{"a": "x{mark}{KEY}{mark}api_key={HEX}{mark}"}}'
    clean = redact(line.encode())[0]
    assert json.loads(clean)["a"].startswith(json.loads(f'"x{mark}"'))
    assert KEY[5:].encode() not in clean and HEX.encode() not in clean


def test_a_secret_that_was_found_is_taken_out_wherever_else_it_stands_in_the_record() -> None:
    clean, counts = redact(f"password = {HEX} and then {HEX}, x{HEX}".encode())
    assert HEX.encode() not in clean and counts == {"secret": 3}
    assert redact(f"and then {HEX}".encode())[1] == {}, "alone it may as well be a hash"
    assert redact(b"password: hunter2x and hunter2x")[1] == {"secret": 1}, "a short one may be a word"


def test_identifiers_of_agents_hashes_and_names_with_digits_stay() -> None:
    for text in (
        "toolu_01QeRyezZ8BRjHMWQyvMVibG", "req_011CY4TskqkCskSsaa9Yfcwq", "msg_01SKEwJRs15d5Pi5h1dFNsWQ",
        "call_abC1dE2fG3hI4jK5lM6nO7p", "3f2b8a60-9d1c-4e5f-8a7b-1c2d3e4f5a6b", HEX, "claude-3-5-sonnet-20241022",
        "qwen3-vl-235b-a22b-instruct", "convertUtf8ToBase64AndSha256Digest", "2026-11-23T10-11-12Z",
        "SHA256:8EZ89UrUy1UfIDRMOjpJcbkA1G9EHivM0Xiee3gybcH", '"cursor": "dZah1Mw5H1j4l4gqgU4a2Z"',
        '"cost_per_token": 1.857e-06', "export GROQ_API_KEY=gsk_...",
    ):  # fmt: skip
        assert redact(f"see {text} there".encode())[1] == {}, text
    assert redact(b"$ cat .key\nx62lv1dykrc3ihyo2m5tb4ldc\n")[1] == {"secret": 1}


@given(
    st.lists(st.sampled_from(["\\", "u", "00", "3d", "5c", "n", "t", '"', "a", "[3", "m", "\u2192", "1b"])).map("".join)
)
def test_each_escape_is_read_as_one_byte_and_found_again(text: str) -> None:
    data = text.encode()
    read = _read(data)
    assert len(read) == len(_ESCAPE.sub(b"x", data)) and b"\\" not in read
    whole = list(_in_record(data, [Span(at, at + 1, "k") for at in range(len(read))]))
    assert b"".join(data[begin:end] for begin, end, _ in whole) == data
