"""What a reader makes of a log, in a form that tests can write down."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from apollod.curation.conversation import Moment, Remark
from apollod.curation.formats.reader import Bad, Cursor, Found, Limits, Reader
from apollod.curation.moments import Learned, Rules, learn
from apollod.curation.signals.evidence_of import evidence_of
from apollod.wire.records import MessagesRecord, decode_record


class Reading(NamedTuple):
    """A log that was read to its end."""

    moments: list[Moment]
    found: list[Found]
    bad: list[Bad]
    counts: Mapping[str, int]
    remarks: list[Remark]


def read(reader: Reader, *pieces: bytes, end: bool = True) -> Reading:
    """A log of these pieces, read at once."""
    folded = reader.fold(Cursor(), b"".join(pieces), end, Limits(items=1 << 20))
    items = folded.items
    return Reading(
        [item for item in items if isinstance(item, Moment)],
        [item for item in items if isinstance(item, Found)],
        [item for item in items if isinstance(item, Bad)],
        folded.counts,
        [item for item in items if isinstance(item, Remark)],
    )


def learned(moment: Moment, **rules: Any) -> Learned:
    """The example of a moment that has one."""
    result = learn(moment, Rules(**rules))
    assert isinstance(result, Learned), result
    return result


def evidence(found: Moment | Remark, **rules: Any) -> list[tuple[str, str, str]]:
    """Kind, polarity and words of what it shows about answers."""
    own = Rules(**rules)
    learned_ = learn(found, own) if isinstance(found, Moment) else ""
    return [(one.kind, one.polarity, one.quote) for one in evidence_of(found, learned_, own)]


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
    """What is learned of each moment, or why nothing is."""
    results = [learn(moment, Rules(**rules)) for moment in reading.moments]
    return [shown(result.record.canonical) if isinstance(result, Learned) else result for result in results]
