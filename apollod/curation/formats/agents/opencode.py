"""Sessions of opencode: `~/.local/share/opencode/opencode.db`, tables `session`, `message` and `part`.

After `packages/opencode/src/session` of opencode (`session.sql.ts`, `message-v2.ts`), versions 1.0 to 1.4. A message is
a row of `message` and its parts are rows of `part`; both are rewritten while the answer comes in, so a message is read
once it is complete. A tool part is a call and its result. `session.revert` names the message from which on the user
took everything back; with the next prompt those rows are deleted.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Replaced, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.database_reader import Queries, Row, Schema, capped, grouped, size_of
from apollod.curation.formats.session_reader import Heard, attempt, json_object, json_or, string
from apollod.errors import RecordRefused

NAME = "opencode"
SUMMARY_ASKED = "What did we do so far?"
"""The program's prompt in place of the compacted messages"""
INTERRUPTED = "[Tool execution was interrupted]"
"""The program's text to the model for a call without a result"""
SILENT = frozenset({"step-finish", "snapshot", "patch", "agent", "retry", "file", "subtask", "compaction"})
"""Types of parts that hold no text of the conversation"""
FACTS = ("id", "parent_id", "version", "revert")


class _Time(msgspec.Struct):
    completed: int | float | None = None


class _Info(msgspec.Struct, rename="camel"):
    """The fields of `message.data` that are read."""

    role: str = ""
    time: _Time | None = None
    model_id: str | None = msgspec.field(default=None, name="modelID")
    error: Any = None
    finish: str | None = None
    summary: Any = None


class _State(msgspec.Struct):
    status: str = ""
    input: Any = None
    output: Any = None
    error: Any = None


class _Part(msgspec.Struct, rename="camel"):
    """The fields of `part.data` that are read."""

    type: str = ""
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    tool: str | None = None
    call_id: str | None = msgspec.field(default=None, name="callID")
    state: _State | None = None


_info = msgspec.json.Decoder(_Info).decode
_part = msgspec.json.Decoder(_Part).decode


class OpenCode:
    """Messages with their parts."""

    name = NAME
    keys_return = False

    def queries(self, schema: Schema) -> Queries | None:
        session, message = schema.get("session", frozenset()), schema.get("message", frozenset())
        if (
            "id" not in session
            or not {"id", "session_id", "data"} <= message
            or not {"id", "message_id", "data"} <= schema.get("part", frozenset())
        ):
            return None
        changed = "max(time_updated)" if "time_updated" in message else "max(id)"
        touched = "coalesce(s.time_updated, '')" if "time_updated" in session else "''"
        born = "s.time_created" if "time_created" in session else "NULL"
        facts = [column for column in FACTS if column in session]
        size = size_of(["data"], "m")
        return Queries(
            sessions=grouped("message", changed, born, "session s ON s.id = g.session_id", f" || ' ' || {touched}")
            + " ORDER BY g.last",
            facts=f"SELECT {capped(facts, 's')} FROM session s WHERE s.id = :session",
            records=(
                f"SELECT m.id AS key, {size} AS size, {capped(['data'], 'm')}, p.id AS part,"
                f" {capped(['data'], 'p', 'part_')}"
                " FROM message m LEFT JOIN part p ON p.message_id = m.id"
                " WHERE m.session_id = :session AND (:after IS NULL OR m.id > :after) ORDER BY m.id, p.id"
            ),
            before=(
                f"SELECT m.id, {size} + coalesce((SELECT sum({size_of(['data'], 'p')}) FROM part p"
                " WHERE p.message_id = m.id), 0) FROM message m WHERE m.session_id = :session AND m.id <= :until"
                " ORDER BY m.id DESC"
            ),
            counted="SELECT count(*) FROM message WHERE session_id = :session AND id <= :until",
        )

    def session(self, facts: Row) -> Session:
        name, version = str(facts.get("id") or ""), string(facts.get("version"))
        return Session(id=name, agent=NAME, version=version, sidechain=bool(facts.get("parent_id")))

    def hear(self, facts: Row, records: Sequence[Sequence[Row]]) -> Sequence[Heard]:
        reverted, within = _reverted(facts.get("revert"))
        heard = []
        for n, rows in enumerate(records):
            name = str(rows[0].get("key"))
            kept = [row for row in rows if name != reverted or str(row.get("part") or "") < within]
            if not kept or (reverted and name > reverted):
                heard.append(Heard(gone=_info_of(rows[0]).role == "assistant"))
                continue
            info = _info_of(rows[0])
            if n + 1 == len(records) and info.role == "assistant" and not _is_finished(info):
                break
            heard.append(attempt(_entries, name, kept))
        return heard


def _reverted(revert: object) -> tuple[str, str]:
    """The first message that was taken back, and its first part that was, if only some were; ("", "") for none."""
    place: Any = json_or(revert, None)
    if not isinstance(place, dict):
        return "", ""
    return str(place.get("messageID") or ""), str(place.get("partID") or "")


def _info_of(row: Row) -> _Info:
    """The facts about a message; empty ones if they cannot be read."""
    return json_or(row.get("data"), _Info(), _Info)


def _is_finished(info: _Info) -> bool:
    return bool(info.error or info.finish or (info.time and info.time.completed))


def _entries(name: str, rows: Sequence[Row]) -> Iterable[Entry]:
    info = json_object(_text(rows[0].get("data")).encode(), _info)
    parts = list[_Part]()
    for row in rows:
        if row.get("part") is None:  # a message without parts
            continue
        if row.get("part_data") is None and info.role == "user":
            yield Dropped("a part that is too long")
            continue
        parts.append(json_object(_text(row.get("part_data")).encode(), _part))
    if info.role == "user":
        yield from _asked(name, parts)
    elif info.role != "assistant":
        yield Unknown(f"message: {info.role}")
    elif info.error:
        kind = info.error.get("name") if isinstance(info.error, dict) else None
        yield Dropped(f"an answer that ended with {kind or 'an error'}")
    elif not _is_finished(info):
        yield Dropped("an answer that was cut off")
    elif info.summary:
        summary = turns.answer("".join(part.text or "" for part in parts if part.type == "text"), context=True)
        yield Replaced((Said(turns.form("user", SUMMARY_ASKED), prompt=True), Said(summary, id=name)))
    else:
        yield from _answered(name, info, parts)


def _asked(name: str, parts: Sequence[_Part]) -> Iterable[Entry]:
    """The text that the person wrote, or that of the program if the person wrote none."""
    texts = [part for part in parts if part.type == "text" and not part.ignored and (part.text or "").strip()]
    own = [part for part in texts if not part.synthetic] or texts
    yield turns.user("".join(part.text or "" for part in own), name)
    yield from (Unknown(f"part: {part.type}") for part in parts if part.type not in SILENT | {"text"})


def _answered(name: str, info: _Info, parts: Sequence[_Part]) -> Iterable[Entry]:
    """One answer per step, each followed by the results of its calls."""
    steps: list[list[_Part]] = [[]]
    for part in parts:
        if part.type == "step-start" and steps[-1]:
            steps.append([])
        elif part.type in ("text", "reasoning", "tool"):
            steps[-1].append(part)
        elif part.type not in SILENT | {"step-start"}:
            yield Unknown(f"part: {part.type}")
    for step in steps:
        tools = [part for part in step if part.type == "tool"]
        cut = info.finish == "length"  # its end would be learned, too
        said = turns.answer(
            "".join(part.text or "" for part in step if part.type == "text" and not (part.synthetic or part.ignored)),
            "".join(part.text or "" for part in step if part.type == "reasoning"),
            [turns.tool_call(part.call_id, part.tool, (part.state or _State()).input) for part in tools],
            cut,
        )
        yield Said(said, id=name, model=info.model_id or "")
        for part in tools:
            yield _result(name, part)


def _result(name: str, part: _Part) -> Said:
    state = part.state or _State()
    failed = state.status == "error"
    given = state.error if failed else state.output if state.status == "completed" else INTERRUPTED
    return turns.tool_result(turns.json_text(given), part.call_id, name, failed)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise RecordRefused("data is no text, or longer than a record may be", "nothing to do; it is kept as it is")
    return value


DATABASE = OpenCode()
