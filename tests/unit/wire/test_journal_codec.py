"""Events to rows and back, and the chain over them."""

import hashlib
import json
from collections.abc import Callable
from enum import Enum
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import msgspec
import pytest
from support.journals import step_completed

from apollod.core import events as ev
from apollod.core.settings import Check, PatternSettings, ReviewSettings, TrainerSettings
from apollod.errors import JournalError
from apollod.wire import event_codec

STEP = step_completed(3, 2, "e" * 32)


PARTICULAR: dict[Any, Any] = {
    msgspec.Raw: msgspec.Raw(b'{"text":"x"}'),
    dict[str, list[Any]]: {"b": ["é", [0.5, 2]], "a": [None, True]},
    tuple[ev.Sampled, ...]: (ev.Sampled(), ev.Sampled("r#1", (1, 2), (3,), 2)),
    ev.Settings: ev.Settings(model_path="/m"),
    PatternSettings: PatternSettings("é", "b", check=Check(regex="x")),
}


def sample(kind: Any, number: int) -> Any:
    """Some value of a field's type."""
    if kind in PARTICULAR:
        return PARTICULAR[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return sample(inner[0], number)
    if origin is Literal:
        return inner[number % len(inner)]
    if origin in (Union, UnionType):
        return sample(inner[0], number)
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(sample(each, number + n) for n, each in enumerate(inner))
    if origin is tuple:
        return (sample(inner[0], number), sample(inner[0], number + 1))
    if origin is list:
        return [sample(inner[0], number), sample(inner[0], number + 1)]
    if origin is dict:
        return {"b é": sample(inner[1], number), "a": sample(inner[1], number + 1)}
    if kind is Any:
        return [{"é": number}]
    if issubclass(kind, Enum):
        return list(kind)[number % len(kind)]
    if issubclass(kind, msgspec.Struct):
        return kind(**{each.name: sample(each.type, n) for n, each in enumerate(msgspec.structs.fields(kind))})
    return {str: f"s{number}é", int: number, bool: number % 2 == 0, float: number / 8, bytes: bytes([number, 255])}[
        kind
    ]


def event_of(cls: type[ev.Event]) -> ev.Event:
    return cls(**{field.name: sample(field.type, number) for number, field in enumerate(msgspec.structs.fields(cls))})


@pytest.mark.parametrize("cls", ev.KINDS.values(), ids=lambda cls: cls.kind)
def test_every_kind_reads_back_as_itself(cls: type[ev.Event]) -> None:
    event = event_of(cls)
    body = event_codec.encode_body(event)
    assert event_codec.decode_event(cls.kind, cls.version, body) == event
    assert isinstance(json.loads(body), dict)


def test_bodies_are_deterministic() -> None:
    one = ev.TrainerBound(pid=1, fingerprint="f", parameters=1, elements=1, versions={"torch": "2", "apollod": "1"})
    two = ev.TrainerBound(pid=1, fingerprint="f", parameters=1, elements=1, versions={"apollod": "1", "torch": "2"})
    assert event_codec.encode_body(one) == event_codec.encode_body(two)


def test_records_stay_as_they_are_byte_by_byte() -> None:
    record = b'{"text":"\xc3\xa9 \\" \\u0000"}'
    event = ev.ExampleAccepted(example="a", record=msgspec.Raw(record), source="s", line=1)
    back = event_codec.decode_event(event.kind, 1, event_codec.encode_body(event))
    assert isinstance(back, ev.ExampleAccepted)
    assert bytes(back.record) == record


@pytest.mark.parametrize(
    "event",
    [
        msgspec.structs.replace(STEP, loss=float("nan")),
        msgspec.structs.replace(STEP, grad_norm=float("inf")),
        msgspec.structs.replace(STEP, step="three"),
        msgspec.structs.replace(STEP, note="\ud800"),
        ev.ExampleAccepted(example="a", record=msgspec.Raw(b"{"), source="s", line=1),
    ],
    ids=["nan-as-null", "infinity", "wrong-type", "surrogate", "broken-record"],
)
def test_an_event_that_would_not_read_back_is_refused(event: ev.Event) -> None:
    with pytest.raises(JournalError, match=event.kind):
        event_codec.encode_body(event)


def test_an_unknown_kind_names_itself() -> None:
    with pytest.raises(JournalError, match=r"dream\.remembered"):
        event_codec.decode_event("dream.remembered", 1, b"{}")


def test_a_future_version_says_what_is_known() -> None:
    with pytest.raises(JournalError, match="version 2, this apollod knows up to 1") as caught:
        event_codec.decode_event("step.completed", 2, b"{}")
    assert "newer apollod" in caught.value.hint


def test_a_body_that_does_not_fit_says_where() -> None:
    with pytest.raises(JournalError, match="missing required field `step`"):
        event_codec.decode_event("step.completed", 1, b"{}")


def test_fields_added_later_are_ignored_by_this_code() -> None:
    body = event_codec.encode_body(STEP)[:-1] + b',"later":1}'
    assert event_codec.decode_event("step.completed", 1, body) == STEP


class Paused3(ev.Event, frozen=True):
    kind: ClassVar[str] = "training.paused"
    version: ClassVar[int] = 3
    who: str


def test_old_bodies_are_upcast_version_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    rename: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: {"name": body["by"]}  # noqa: E731
    monkeypatch.setitem(event_codec.KINDS, "training.paused", Paused3)
    monkeypatch.delitem(event_codec._current, "training.paused")
    monkeypatch.setitem(event_codec._decoders, "training.paused", msgspec.json.Decoder(Paused3))
    monkeypatch.setitem(event_codec.UPCASTS, ("training.paused", 1), rename)
    with pytest.raises(JournalError, match="from version 2"):
        event_codec.decode_event("training.paused", 1, b'{"by":"ctl"}')
    monkeypatch.setitem(event_codec.UPCASTS, ("training.paused", 2), lambda body: {"who": body["name"]})
    assert event_codec.decode_event("training.paused", 1, b'{"by":"ctl"}') == Paused3(who="ctl")


def test_the_chain_is_what_its_description_says() -> None:
    """Written out once more, as an auditor would: it must never change."""
    text = b""
    for field in (bytes(32), b"1", b"1700000000000000000", b"step.completed", b"1", b"3", b'{"step":3}'):
        text += len(field).to_bytes(4, "big") + field
    found = event_codec.chain(
        event_codec.GENESIS, 1, 1_700_000_000_000_000_000, "step.completed", 1, "3", b'{"step":3}'
    )
    assert found == hashlib.sha256(text).digest()
    assert found.hex() == "24ba42664cd8c8b2ade6ebffab8f3b0d06d9008a9bed5ef43c8d1bb8a318d426"


@pytest.mark.parametrize("position", range(7))
def test_every_field_counts(position: int) -> None:
    fields: list[Any] = [event_codec.GENESIS, 1, 2, "kind", 1, "key", b"body"]
    changed = list(fields)
    changed[position] = {0: b"\x01" * 32, 3: "kin", 5: "kkey", 6: b"bod"}.get(position, 7)
    assert event_codec.chain(*fields) != event_codec.chain(*changed)


def rows_of(events: list[ev.Event], seq: int = 0, prev: bytes = event_codec.GENESIS) -> list[event_codec.Row]:
    """Rows as the journal holds them after event `seq`."""
    rows = []
    for event in events:
        seq += 1
        body = event_codec.encode_body(event)
        hash_ = event_codec.chain(prev, seq, 10**18 + seq, event.kind, event.version, event.key(), body)
        rows.append((seq, 10**18 + seq, event.kind.encode(), event.version, event.key().encode(), body, prev, hash_))
        prev = hash_
    return rows


EVERY_KIND = [event_of(cls) for cls in ev.KINDS.values()] + [ev.SourceDiscovered(source="ü" * 5000, path="/p" * 5000)]


def test_many_rows_are_checked_as_one_by_one() -> None:
    rows = rows_of(EVERY_KIND, 9_999_990, b"\x07" * 32)
    assert event_codec.fitting(rows, 9_999_990, b"\x07" * 32) == len(rows)
    assert event_codec.fitting(rows, 9_999_989, b"\x07" * 32) == event_codec.fitting(rows, 9_999_990, b"\x06" * 32) == 0
    assert event_codec.fitting([], 0, event_codec.GENESIS) == 0


@pytest.mark.parametrize("length", [4095, 4096, 4097])
def test_a_field_of_any_length_is_checked_as_it_was_chained(length: int) -> None:
    event = ev.SourceDiscovered(source="s" * length, path="")
    short = len(event_codec.encode_body(ev.SourceDiscovered(source="s", path=""))) - 1
    of_body = ev.SourceDiscovered(source="s", path="p" * (length - short - 1))
    rows = rows_of([event, of_body])
    assert len(rows[0][4]) == len(rows[1][5]) == length
    assert event_codec.fitting(rows, 0, event_codec.GENESIS) == 2


def test_kinds_and_versions_that_are_not_known_are_chained_too() -> None:
    prev, rows = event_codec.GENESIS, []
    for seq, (kind, version) in enumerate([("dream.remembered", 1), ("step.completed", 7)], 1):
        hash_ = event_codec.chain(prev, seq, 2, kind, version, "", b"{}")
        rows.append((seq, 2, kind.encode(), version, b"", b"{}", prev, hash_))
        prev = hash_
    assert event_codec.fitting(rows, 0, event_codec.GENESIS) == 2


@pytest.mark.parametrize("value", [0, "", b"", None], ids=repr)
@pytest.mark.parametrize("column", range(8))
def test_a_change_in_any_column_ends_what_fits(column: int, value: Any) -> None:
    """Whatever is in its place: a damaged file may hold a column of another type."""
    rows: list[Any] = rows_of([STEP] * 3)
    rows[1] = (*rows[1][:column], value, *rows[1][column + 1 :])
    assert event_codec.fitting(rows, 0, event_codec.GENESIS) == 1


def test_rows_left_out_or_out_of_place_end_what_fits() -> None:
    one, two, three = rows_of([STEP] * 3)
    assert (
        event_codec.fitting([one, three], 0, event_codec.GENESIS)
        == event_codec.fitting([one, one], 0, event_codec.GENESIS)
        == 1
    )
    assert event_codec.fitting([two, one], 0, event_codec.GENESIS) == 0
    assert event_codec.fitting([two, three], 1, one[-1]) == 2


def test_many_rows_are_decoded_as_one_by_one() -> None:
    rows = rows_of(EVERY_KIND)
    expected = [
        (ev.Recorded(seq, 10**18 + seq, event), row[-1])
        for seq, (event, row) in enumerate(zip(EVERY_KIND, rows, strict=True), 1)
    ]
    assert event_codec.decode_rows(rows) == expected


@pytest.mark.parametrize(("quality", "every"), [({}, 0), ({"quality": {}}, 0), ({"quality": {"every_steps": 7}}, 7)])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_journal_that_says_nothing_of_the_guard_had_none(version: int, quality: dict[str, Any], every: int) -> None:
    told = {"pid": 1, "version_name": "0.1.0", "settings": {"model_path": "/m"} | quality}
    started = event_codec.decode_event("daemon.started", version, msgspec.json.encode(told))
    assert isinstance(started, ev.DaemonStarted) and started.settings.quality.every_steps == every
    assert ev.Settings("/m").quality.every_steps > 0


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, {"settings": {"model_path": "/m", "rank": 8}}),
        (2, {"settings": {"model_path": "/m", "trainer": {"rank": 8}}}),
        (2, {"settings": {"model_path": "/m"}}),
        (3, {"settings": {"model_path": "/m", "trainer": {"rank": 8, "limiter_rule": "growth"}}}),
    ],
)
def test_steps_recorded_before_there_was_a_choice_were_limited_by_the_papers_rule_and_always_wrote(
    version: int, body: dict[str, Any]
) -> None:
    """Whatever the default is: they are run again to the bits they had."""
    told = msgspec.json.encode({"pid": 1, "version_name": "0.1.0"} | body)
    started = event_codec.decode_event("daemon.started", version, told)
    assert isinstance(started, ev.DaemonStarted) and started.settings.trainer.limiter_rule == "growth"
    assert started.settings.trainer.loss_min == 0.0
    now = ev.Settings(model_path="/m").trainer
    assert (now.limiter_rule, now.loss_min > 0.0) == ("envelope", True)
    assert event_codec.decode_event("daemon.started", started.version, event_codec.encode_body(started)) == started


def test_a_life_with_settings_that_are_keys_no_more_is_read_and_what_its_replay_needs_is_kept() -> None:
    told = {
        "model_path": "/m", "trainer": {"limiter_rule": "growth", "rescore_share": 0.5, "cache_every": 3},
        "review": {"divergence_after": 4}, "checkpoint": {"keep_days": 2.0}, "judge": {"model": "j"},
        "quality": {"loss_margin": 9.0, "entropy_margin": 0.0, "length_margin": 0.0},
        "dream": {"answer_temperature": 0.1},
    }  # fmt: skip
    body = msgspec.json.encode({"pid": 1, "version_name": "0.1.0", "settings": told})
    started = event_codec.decode_event("daemon.started", 5, body)
    assert isinstance(started, ev.DaemonStarted)
    kept = ev.Settings(
        "/m", trainer=TrainerSettings(limiter_rule="growth", rescore_share=0.5),
        review=ReviewSettings(divergence_after=4),
    )  # fmt: skip
    assert started.settings == kept
