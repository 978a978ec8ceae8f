"""Credentials do not reach what is kept, and what is none stays readable."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.secret_samples import WITH, WITHOUT

from apollod.curation.formats.claude_code import READER
from apollod.curation.formats.jsonl_records import JsonlRecords
from apollod.curation.formats.reader import Bad, Cursor, Found, Limits
from apollod.curation.redaction import placeholder, redact, redact_text
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
