"""What a reader makes of a log, in a form that tests can write down."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from apollod.curation.conversation import Moment, Remark
from apollod.curation.formats.reader import Bad, Cursor, Found, Limits, Reader
from apollod.curation.moments import Learned, Rules, gathered, learn
from apollod.curation.preferences import RATED_BAD
from apollod.curation.signals.cues import evidence_of
from apollod.wire.records import MessagesRecord, decode_record


class Reading(NamedTuple):
    """A log that was read to its end."""

    moments: list[Moment]
    found: list[Found]
    bad: list[Bad]
    counts: Mapping[str, int]
    remarks: list[Remark]


def read(reader: Reader, *pieces: bytes, end: bool = True) -> Reading:
    """A log of these pieces, read at once. Rows that are rated bad are counted, as where ratings are not learned."""
    folded = reader.fold(Cursor(), b"".join(pieces), end, Limits(items=1 << 20))
    is_bad = [isinstance(one, Found) and gathered(one, Rules()).unlearned == {RATED_BAD: 1} for one in folded.items]
    items = [one for one, bad in zip(folded.items, is_bad, strict=True) if not bad]
    counts = {**folded.counts, **({f"dropped: {RATED_BAD}": sum(is_bad)} if any(is_bad) else {})}
    return Reading(
        [item for item in items if isinstance(item, Moment)],
        [item for item in items if isinstance(item, Found)],
        [item for item in items if isinstance(item, Bad)],
        counts,
        [item for item in items if isinstance(item, Remark)],
    )


def learned(moment: Moment, **rules: Any) -> Learned:
    """The last example of a moment that has one."""
    return every(moment, **rules)[-1]


def every(moment: Moment, **rules: Any) -> tuple[Learned, ...]:
    """The examples of a moment that has some, each of one answer, the last message of its record."""
    found = learn(moment, Rules(**rules))
    assert found.learned, found.unlearned
    for one in found.learned:
        starred = [line.partition(":")[0].endswith("*") for line in shown(one.record.canonical)]
        assert starred.count(True) == 1 and starred[-1]
    return found.learned


def evidence(found: Moment | Remark, **rules: Any) -> list[tuple[str, str, str]]:
    """Kind, polarity and words of what it shows about answers."""
    return [(one.kind, one.polarity, one.quote) for one in evidence_of(found, Rules(**rules))]


def kinds(found: Moment | Remark, **rules: Any) -> list[str]:
    """Kinds of the same."""
    return [kind for kind, _, _ in evidence(found, **rules)]


def shown(canonical: bytes) -> list[str]:
    """Each message of a record, with a star at what is learned: role, thoughts in brackets, text, calls."""
    record = decode_record(canonical)
    assert isinstance(record, MessagesRecord)
    return [
        f"{m.role}{'*' * m.weight if m.role == 'assistant' else ''}: "
        + " ".join(
            filter(
                None,
                [
                    f"[{m.reasoning_content}]" if m.reasoning_content else "",
                    m.content,
                    *(f"{call.function.name}{call.function.arguments}" for call in m.tool_calls or ()),
                ],
            )
        )
        for m in record.messages
    ]


def examples(reading: Reading, **rules: Any) -> list[list[str] | str]:
    """Of each moment the conversation before its last example, with a star at each answer that is an example; or why
    there is none."""
    told: list[list[str] | str] = []
    for moment in reading.moments:
        found = learn(moment, Rules(**rules))
        if not found.learned:
            told.append(next(iter(found.unlearned)))
            continue
        plain = shown(found.learned[-1].record.canonical)
        lines = list(plain)
        for one in every(moment, **rules)[:-1]:
            own = shown(one.record.canonical)
            assert own[:-1] == plain[: len(own) - 1]
            lines[len(own) - 1] = own[-1]
        told.append(lines)
    return told
