"""Databases as agents write them, by the schemas that their projects publish; every write is its own transaction."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

HERMES = """
CREATE TABLE schema_version (version INTEGER);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT, system_prompt TEXT,
    parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
    title TEXT, rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
    content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, effect_disposition TEXT, timestamp REAL NOT NULL,
    token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT, observed INTEGER DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT
);
CREATE INDEX idx_messages_session_id ON messages(session_id, id);
"""
HERMES_2 = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, system_prompt TEXT, started_at REAL);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT, tool_call_id TEXT,
    tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT
);
"""
OPENCLAW = """
CREATE TABLE session_windows (
    session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL, previous_session_id TEXT, reason TEXT,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
) STRICT;
CREATE TABLE transcript_events (
    session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT NOT NULL, created_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, seq), FOREIGN KEY (session_id) REFERENCES session_windows(session_id) ON DELETE CASCADE
) STRICT;
"""
OPENCODE = """
CREATE TABLE session (
    id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL, directory text NOT NULL,
    title text NOT NULL, version text NOT NULL, revert text, time_created integer NOT NULL,
    time_updated integer NOT NULL, time_archived integer
);
CREATE TABLE message (
    id text PRIMARY KEY, session_id text NOT NULL REFERENCES session(id) ON DELETE CASCADE,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL
);
CREATE TABLE part (
    id text PRIMARY KEY, message_id text NOT NULL REFERENCES message(id) ON DELETE CASCADE, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL
);
CREATE INDEX message_session_idx ON message (session_id);
CREATE INDEX part_message_idx ON part (message_id);
"""
WEBUI = """
CREATE TABLE feedback (
    id TEXT NOT NULL PRIMARY KEY, user_id TEXT, version BIGINT, type TEXT, data JSON, meta JSON, snapshot JSON,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE TABLE chat (id TEXT PRIMARY KEY, chat JSON);
"""

GOOSE = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '',
    session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP,
    extension_data TEXT DEFAULT '{}', model_config_json TEXT
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL, metadata_json TEXT
);
CREATE INDEX idx_messages_session ON messages(session_id);
"""


class Writer:
    """The program that owns a database: WAL mode, and a patience of a tenth of a second."""

    def __init__(self, path: Path, schema: str = "", wal: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.db = sqlite3.connect(path, isolation_level=None, timeout=0.1, check_same_thread=False)
        self.db.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
        if schema:
            self.db.executescript(schema)
        self.time = 1000.0

    def insert(self, table: str, **values: Any) -> int:
        names = ", ".join(values)
        marks = ", ".join("?" for _ in values)
        return int(
            self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values())).lastrowid or 0
        )

    def tick(self) -> float:
        self.time += 1
        return self.time

    def close(self) -> None:
        self.db.close()


class Chats(Protocol):
    """A database in which sessions are written turn by turn."""

    path: Path
    db: sqlite3.Connection

    def begin(self, session: str) -> None: ...

    def ask(self, session: str, text: str) -> None: ...

    def answer(self, session: str, text: str) -> None: ...


class Hermes(Writer):
    def __init__(self, path: Path, schema: str = HERMES, wal: bool = True) -> None:
        super().__init__(path, schema, wal)

    def begin(self, session: str, **values: Any) -> None:
        given = {"id": session, "source": "cli", "model": "apollo", "started_at": self.tick(), **values}
        self.insert("sessions", **given)

    def say(self, session: str, role: str, content: str | None, **values: Any) -> int:
        given = {"timestamp": self.tick(), **values}
        return self.insert("messages", session_id=session, role=role, content=content, **given)

    def ask(self, session: str, text: str) -> None:
        self.say(session, "user", text)

    def answer(self, session: str, text: str) -> None:
        self.say(session, "assistant", text, finish_reason="stop")


class OpenClaw(Writer):
    def __init__(self, path: Path, wal: bool = True) -> None:
        super().__init__(path, OPENCLAW, wal)
        self.last: dict[str, str | None] = {}

    def begin(self, session: str, key: str = "agent:main:main") -> None:
        at = int(self.tick())
        self.insert("session_windows", session_id=session, session_key=key, created_at=at, updated_at=at)
        self.last[session] = None
        self.event(session, {"type": "session", "version": 3, "id": session, "cwd": "/w"})

    def event(self, session: str, event: dict[str, Any] | str) -> None:
        (seq,) = self.db.execute(
            "SELECT coalesce(max(seq) + 1, 0) FROM transcript_events WHERE session_id = ?", (session,)
        ).fetchone()
        text = event if isinstance(event, str) else json.dumps(event)
        self.insert("transcript_events", session_id=session, seq=seq, event_json=text, created_at=int(self.tick()))

    def message(self, session: str, message: dict[str, Any], after: str | None = None) -> str:
        name = f"e{int(self.tick())}"
        parent = after or self.last[session]
        self.event(session, {"type": "message", "id": name, "parentId": parent, "message": message})
        self.last[session] = name
        return name

    def ask(self, session: str, text: str, after: str | None = None) -> None:
        self.message(session, {"role": "user", "content": [{"type": "text", "text": text}]}, after)

    def answer(self, session: str, text: str) -> None:
        content = [{"type": "text", "text": text}]
        self.message(session, {"role": "assistant", "content": content, "model": "apollo", "stopReason": "stop"})


class Goose(Writer):
    def __init__(self, path: Path, wal: bool = True) -> None:
        super().__init__(path, GOOSE, wal)

    def begin(self, session: str) -> None:
        model = json.dumps({"model_name": "apollo", "context_limit": 4096})
        self.insert("sessions", id=session, working_dir="/w", created_at=self.tick(), model_config_json=model)

    def say(self, session: str, role: str, *content: dict[str, Any], **values: Any) -> None:
        at = int(self.tick())
        given = {"message_id": f"msg_{at}", "content_json": json.dumps(content), "created_timestamp": at, **values}
        self.insert("messages", session_id=session, role=role, **given)

    def ask(self, session: str, text: str) -> None:
        self.say(session, "user", {"type": "text", "text": text})

    def answer(self, session: str, text: str) -> None:
        self.say(session, "assistant", {"type": "text", "text": text})


class Cursor(Writer):
    def __init__(self, path: Path, wal: bool = True) -> None:
        super().__init__(path, "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);", wal)
        self.chats: dict[str, dict[str, Any]] = {}

    def begin(self, session: str) -> None:
        at = int(self.tick())
        chat = {"composerId": session, "createdAt": at, "modelConfig": {"modelName": "apollo"}, "status": "completed"}
        self.chats[session] = {**chat, "lastUpdatedAt": at, "fullConversationHeadersOnly": []}
        self.keep(f"composerData:{session}", self.chats[session])

    def keep(self, key: str, value: Any) -> None:
        self.insert("cursorDiskKV", key=key, value=json.dumps(value))

    def say(self, session: str, type: int, text: str, **more: Any) -> None:
        at = int(self.tick())
        self.keep(f"bubbleId:{session}:b{at}", {"bubbleId": f"b{at}", "type": type, "text": text, **more})
        self.chats[session]["fullConversationHeadersOnly"].append({"bubbleId": f"b{at}", "type": type})
        self.chats[session]["lastUpdatedAt"] = at
        self.keep(f"composerData:{session}", self.chats[session])

    def ask(self, session: str, text: str) -> None:
        self.say(session, 1, text)

    def answer(self, session: str, text: str) -> None:
        """Texts that follow each other are one answer: the model goes on with another one only after a call."""
        said = self.chats[session]["fullConversationHeadersOnly"]
        if said and said[-1]["type"] == 2:
            call = {"toolCallId": said[-1]["bubbleId"], "name": "look", "rawArgs": "{}", "status": "completed"}
            self.say(session, 2, "", toolFormerData={**call, "result": "nothing"})
        self.say(session, 2, text)


class OpenCode(Writer):
    def __init__(self, path: Path, wal: bool = True) -> None:
        super().__init__(path, OPENCODE, wal)

    def begin(self, session: str, **values: Any) -> None:
        at = int(self.tick())
        self.insert(
            "session", id=session, project_id="p", slug="s", directory="/w", title="t", version="1.2.3",
            time_created=at, time_updated=at, **values,
        )  # fmt: skip

    def message(self, session: str, data: dict[str, Any] | str, parts: Sequence[dict[str, Any] | str] = ()) -> str:
        at = int(self.tick())
        name = f"msg_{at:08d}"
        text = data if isinstance(data, str) else json.dumps(data)
        self.insert("message", id=name, session_id=session, time_created=at, time_updated=at, data=text)
        for part in parts:
            self.part(session, name, part)
        return name

    def part(self, session: str, message: str, data: dict[str, Any] | str) -> str:
        at = int(self.tick())
        name = f"prt_{at:08d}"
        text = data if isinstance(data, str) else json.dumps(data)
        self.insert(
            "part", id=name, message_id=message, session_id=session, time_created=at, time_updated=at, data=text
        )
        return name

    def finish(self, message: str, **more: Any) -> None:
        data = {"role": "assistant", "modelID": "apollo", "time": {"created": 1, "completed": 2}, "finish": "stop"}
        self.db.execute(
            "UPDATE message SET data = ?, time_updated = ? WHERE id = ?",
            (json.dumps({**data, **more}), int(self.tick()), message),
        )

    def ask(self, session: str, text: str) -> None:
        self.message(session, {"role": "user", "time": {"created": 1}}, [{"type": "text", "text": text}])

    def answer(self, session: str, text: str) -> None:
        """As it comes in: the message, its text in two writes, and that it is complete."""
        name = self.message(session, {"role": "assistant", "modelID": "apollo", "time": {"created": 1}})
        part = self.part(session, name, {"type": "text", "text": text[:3]})
        self.db.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps({"type": "text", "text": text}), part))
        self.finish(name)


class Webui(Writer):
    def __init__(self, path: Path, wal: bool = True) -> None:
        super().__init__(path, WEBUI, wal)

    def rate(self, rating_id: str, question: str, answer: str, rating: int, **values: Any) -> None:
        """A rating of an answer, in a chat with another one beside it."""
        said = [("u", None, "user", question, ""), ("a", "u", "assistant", answer, "apollo")]
        chat = {
            name: {"id": name, "parentId": after, "childrenIds": [], "role": role, "content": text, "model": model}
            for name, after, role, text, model in [*said, ("b", "u", "assistant", "no", "other")]
        }
        given: dict[str, Any] = {
            "data": json.dumps({"rating": rating, "model_id": "apollo", "sibling_model_ids": ["other"], "reason": "x"}),
            "meta": json.dumps({"arena": False, "chat_id": "c", "message_id": "a"}),
            "snapshot": json.dumps({"chat": {"id": "c", "chat": {"history": {"messages": chat, "currentId": "a"}}}}),
            **values,
        }
        at = int(self.tick())
        self.insert(
            "feedback", id=rating_id, user_id="me", version=0, type="rating", created_at=at, updated_at=at, **given
        )
