-- The journal's stored tables: every fact as one row that is never changed, chained by hash to the row before it.
--
-- Everything that is derived from them (indexes, other tables, views) is in views.sql, which is applied again whenever
-- it changes. A change of this file's tables is a file of its own with the next number: a released file is never
-- edited. Schemas 1 to 23 had the same tables and are brought to 24 by views.sql alone (docs/decisions/0037).
--
-- Bodies are JSON text, so that plain SQL can ask; STRICT, so that a column holds its declared type. `events` has no
-- UNIQUE index on random keys, which would make appends 8 times as slow at a million rows. Only the daemon writes rows;
-- triggers refuse a change and a deletion to a person with a SQLite shell, too, and the hash chain shows the rest. A
-- trigger against gaps would read the row before for every row: a fifth of an append for what the chain shows anyway.
--
-- SQLite stores the text of a CREATE statement, comments included, and journals of schemas 1 to 23 have these very
-- texts: they stay to the byte. (hash: of what, apollod/wire/event_codec.py says today.)

PRAGMA application_id = 0x41504F4C;  -- "APOL"

CREATE TABLE events (
    seq       INTEGER PRIMARY KEY,                      -- order of everything; from 1, without gaps
    at_ns     INTEGER NOT NULL,                         -- nanoseconds since 1970, for people; a clock may jump
    kind      TEXT NOT NULL,                            -- noun.past-participle
    version   INTEGER NOT NULL,                         -- of the body's schema
    key       TEXT NOT NULL,                            -- what it is about: step number, example id, source; may be ''
    body      TEXT NOT NULL,                            -- JSON object
    prev_hash BLOB NOT NULL CHECK (length(prev_hash) = 32),
    hash      BLOB NOT NULL CHECK (length(hash) = 32)   -- SHA-256; apollod/wire/journal.py says of what
) STRICT;

CREATE TRIGGER events_unchanged BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only: events are not changed'); END;

CREATE TRIGGER events_kept BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only: events are not deleted'); END;

-- journal_id: random, in a copy the same. carried_bytes: size of a journal when it went on from its archive. views:
-- digest of the views.sql that was applied. *indexed_seq: the last event that is in each index table of views.sql.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('journal_id', lower(hex(randomblob(16))));

-- Applied files, by number; PRAGMA user_version is the newest.
CREATE TABLE migrations (
    number   INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    checksum TEXT NOT NULL,             -- SHA-256 of the file, hex
    at_ns    INTEGER NOT NULL
) STRICT;
