"""Credentials do not reach what is kept, and what is none stays readable. Rules in the format of
gitleaks mean here what they mean there, and work on texts that are escaped."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.secret_samples import WITH, WITHOUT

from apollod.curation.formats.claude_code import READER
from apollod.curation.formats.jsonl_records import JsonlRecords
from apollod.curation.formats.reader import Bad, Cursor, Found, Limits
from apollod.curation.redaction import (
    _ESCAPE,
    Rules,
    Span,
    _in_record,
    _read,
    placeholder,
    redact,
    redact_text,
    shipped,
)
from apollod.wire.records import parse_line


def secrets_of(sample: str) -> list[str]:
    return re.findall("§(.*?)§", sample, re.S)


def pieces(secret: str) -> list[str]:
    """Of which none may be left: a key without its end is no key, but most of it was shown."""
    return [secret[n : n + 8] for n in range(max(1, len(secret) - 7))]


@pytest.mark.parametrize("sample", WITH)
def test_a_secret_is_gone_and_the_text_around_it_is_not(sample: str) -> None:
    bare = sample.replace("§", "")
    clean, counts = redact(bare.encode())
    for secret in secrets_of(sample):
        assert not any(piece.encode() in clean for piece in pieces(secret)) and sum(counts.values()) >= 1
    begin = sample.split("§")[0]
    assert clean.startswith(begin.encode()), clean


@pytest.mark.parametrize("sample", WITHOUT)
def test_what_is_no_secret_stays(sample: str) -> None:
    assert redact(sample.encode()) == (sample.encode(), {})


@pytest.mark.parametrize("sample", WITH)
def test_the_same_in_json(sample: str) -> None:
    """As it stands in a log: escaped, inside an object."""
    line = json.dumps({"text": sample.replace("§", "")}).encode() + b"\n"
    clean, _ = redact(line)
    text = json.loads(clean)["text"]
    assert not any(piece in text for secret in secrets_of(sample) for piece in pieces(secret))


def test_the_same_secret_is_the_same_placeholder_and_redacting_again_changes_nothing() -> None:
    key = b"ghp_" + b"aB3dE5fG7h" * 4
    once, counts = redact(b"use " + key + b" and " + key + b" twice")
    assert once.count(placeholder("github-pat", key)) == 2 and counts == {"github-pat": 2}
    assert redact(once) == (once, {})
    for sample in WITH:
        clean = redact(sample.replace("§", "").encode())[0]
        assert redact(clean) == (clean, {}), clean


@given(st.binary(max_size=200))
def test_it_never_raises(data: bytes) -> None:
    redact(data)


@pytest.mark.parametrize(
    "piece",
    [
        b"token=",
        b"://a:",
        b"key key ",
        b"-----BEGIN PRIVATE KEY-----",
        b"password is ",
        b"?sig=",
        b"curl -u a",
        b"mysql ",
        b"cookie: a=b; ",
        b"authorization: ",
        b'"name": "API_KEY" ',
        b"api_key\\n0 ",
        b"eyJhbGciOiJ.",
        b"--key ",
    ],
)
@pytest.mark.timeout(60)
def test_long_texts_of_beginnings_do_not_take_for_ever(piece: bytes) -> None:
    """Where patterns went to the end of the text from each of these, it took an hour."""
    redact(piece * 40_000)


def test_nothing_that_a_reader_gives_away_has_a_secret() -> None:
    key = "sk-ant-api03-" + "aB3dE5fG7h" * 6
    record = json.dumps({"messages": [{"role": "user", "content": key}, {"role": "assistant", "content": "ok"}]})
    bad = f"not JSON {key}\n"
    folded = JsonlRecords().fold(Cursor(), f"{record}\n{bad}".encode(), True, Limits())
    found, refused = folded.items
    assert isinstance(found, Found) and key not in found.record.canonical.decode()
    assert isinstance(refused, Bad) and key not in refused.data.decode() and key not in refused.reason
    assert folded.counts == {"redacted: anthropic-key": 2}
    clean = record.replace(key, placeholder("anthropic-key", key.encode()).decode())
    assert found.record.id == parse_line(clean.encode()).id
    log = json.dumps({"type": "user", "uuid": "u", "sessionId": "s", "message": {"content": key}}).encode() + b"\n"
    answer = json.dumps({"type": "assistant", "message": {"id": "m", "content": key}}).encode() + b"\n"
    (moment,) = READER.fold(Cursor(), log + answer, True, Limits()).items
    assert key not in str(moment) and "[redacted anthropic-key" in str(moment)


def test_a_secret_in_a_line_that_is_too_long_does_not_reach_quarantine() -> None:
    key = "ghp_" + "aB3dE5fG7h" * 4
    log = ("word " * 400 + key + " word" * 400).encode() + b"\n"
    cursor, kept = Cursor(), b""
    while cursor.offset < len(log):
        folded = JsonlRecords().fold(cursor, log[cursor.offset : cursor.offset + 600], False, Limits(100))
        kept += b"".join(item.data for item in folded.items if isinstance(item, Bad))
        cursor = folded.cursor
    assert key.encode() not in kept and b"[redacted github-pat" in kept


def test_a_text_is_redacted_as_its_bytes_are_also_where_it_is_no_utf_8() -> None:
    text = "caf\u00e9 \ud800 password: hunter2hunter2 \u4f60"
    assert redact_text(text) == redact(text.encode("utf-8", "replace"))[0].decode()
    assert redact_text(text).startswith("caf\u00e9 ? password: [redacted ") and redact_text("\u4f60") == "\u4f60"


PASTED = ["9f86d081884c7d659a2feaa0c55ad015", "4b7e1c9a-52d0-4f6b-8a3e-d17c90f2b65e", "8843120975561203"]


@pytest.mark.parametrize("token", PASTED)
def test_a_message_of_a_person_that_is_one_token_is_a_key(token: str) -> None:
    """Also where nothing tells it from a hash: nobody says a hash and nothing else."""
    for message in (
        {"type": "user", "message": {"role": "user", "content": token}},
        {"message": {"role": "user", "content": [{"type": "text", "text": f" {token}\n"}]}},
        {"messages": [{"content": token, "role": "user"}]},
        {"prompt": token, "completion": "Thanks."},
        {"conversations": [{"from": "human", "value": token}]},
    ):
        for line in (json.dumps(message), json.dumps(message, separators=(",", ":"))):
            assert token.encode() not in redact(line.encode())[0], line
    assert token not in redact_text(f"<|im_start|>user\n{token}<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("token", PASTED)
def test_the_same_token_stays_in_results_of_tools_ids_and_longer_messages(token: str) -> None:
    for record in (
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": token}]}},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": token}]}]},
        {"type": "user", "uuid": token, "sessionId": token, "message": {"role": "user", "content": f"revert {token}"}},
        {"role": "tool", "content": token},
        {"role": "assistant", "content": token},
    ):
        line = json.dumps(record).encode()
        assert redact(line) == (line, {})


@pytest.mark.parametrize(
    "said",
    [
        "claude-sonnet-4-20250514", "internationalization", "src/curation/redaction2.py", "https://a.io/b?c=1234567",
        "~/a/b2/c3/d4/e5f6", "2026-11-23T10:11:12Z", "feature/issue-1234-x2", "localhost:8080/index",
        "test_a_thing_of_2026", "getUserById2Something",
    ],
)  # fmt: skip
def test_a_person_may_say_one_name_path_or_date(said: str) -> None:
    line = json.dumps({"role": "user", "content": said}).encode()
    assert redact(line) == (line, {})


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
