-- The journal: every fact as one row that is never changed, chained by hash to the row before it.
--
-- Why it looks like this: bodies are JSON text, so that anybody can ask with plain SQL; STRICT, so that a column holds what
-- it says; no UNIQUE index on random keys in `events`, which would cost a factor of 8 in appends at a million rows
-- (docs: reliability, section 2). Rows are written by the daemon only; triggers refuse a change and a deletion
-- also to a person with a SQLite shell, and the hash chain shows whatever gets past them. (A trigger against gaps would have to
-- look at the row before, for every row, which costs a fifth of an append and shows nothing that the chain does not show.)
--
-- This file is immutable once released: a change is the next number.

PRAGMA application_id = 0x41504F4C;  -- "APOL"
PRAGMA user_version = 1;             -- number of the newest migration applied

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

CREATE INDEX events_kind ON events (kind);  -- with the rowid at its end: (kind, seq)

CREATE TRIGGER events_unchanged BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only: events are not changed'); END;

CREATE TRIGGER events_kept BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only: events are not deleted'); END;

-- Which examples were accepted, and where: a line is learned once. Derived from the events up to meta.indexed_seq, so that the
-- index is written in its own order now and then; random keys with every append would cost a page each. Ask the view known_examples.
CREATE TABLE example_index (
    id  TEXT PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Folded states, so that a start need not read everything. A cache: may be emptied at any time.
CREATE TABLE snapshots (
    seq        INTEGER PRIMARY KEY,     -- the last event that is folded in
    at_ns      INTEGER NOT NULL,
    code       TEXT NOT NULL,           -- version of the fold that made it
    state      BLOB NOT NULL,
    state_hash BLOB NOT NULL            -- SHA-256 of the event's hash and the state
) STRICT;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('journal_id', lower(hex(randomblob(16)))), ('indexed_seq', '0');

CREATE TABLE migrations (
    number   INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    checksum TEXT NOT NULL,             -- SHA-256 of the file, hex
    at_ns    INTEGER NOT NULL
) STRICT;

CREATE VIEW known_examples AS
SELECT id, seq FROM example_index
UNION ALL
SELECT key, seq FROM events
WHERE kind = 'example.accepted' AND seq > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'indexed_seq')
  AND NOT EXISTS (SELECT 1 FROM example_index WHERE id = events.key);

-- Views: the common questions as one line of SQL. `at` is UTC, ISO-8601.

CREATE VIEW steps AS
SELECT body ->> '$.step' AS step, body ->> '$.parent' AS parent, body ->> '$.example' AS example,
       body ->> '$.loss' AS loss, body ->> '$.lr' AS lr, body ->> '$.grad_norm' AS grad_norm,
       body ->> '$.tokens' AS tokens, body ->> '$.targets' AS targets, body ->> '$.fingerprint' AS fingerprint,
       body ->> '$.seconds' AS seconds, body ->> '$.applied' AS applied,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'step.completed';

-- state: pending, trained, rejected; skipped: its loss was not finite; held: its step could not be run.
CREATE VIEW examples AS
SELECT accepted.key AS id, accepted.seq, accepted.body ->> '$.source' AS source, accepted.body ->> '$.line' AS line,
       accepted.body ->> '$.record' AS record,
       CASE
           WHEN refused.id IS NOT NULL THEN 'rejected'
           WHEN tried.kind = 'step.failed' THEN 'held'
           WHEN tried.kind = 'step.completed' AND tried.applied THEN 'trained'
           WHEN tried.kind = 'step.completed' THEN 'skipped'
           ELSE 'pending'
       END AS state,
       encoded.tokens, encoded.targets, tried.step,
       strftime('%Y-%m-%dT%H:%M:%fZ', accepted.at_ns / 1e9, 'unixepoch') AS at
FROM events AS accepted
LEFT JOIN (
    SELECT key AS id, max(seq), body ->> '$.tokens' AS tokens, body ->> '$.targets' AS targets
    FROM events WHERE kind = 'example.encoded' GROUP BY key
) AS encoded ON encoded.id = accepted.key
LEFT JOIN (
    SELECT key AS id, max(seq) FROM events WHERE kind = 'example.rejected' GROUP BY key
) AS refused ON refused.id = accepted.key
LEFT JOIN (  -- the cast gives the column an affinity, without which SQLite cannot index it for the join
    SELECT CAST(body ->> '$.example' AS TEXT) AS id, max(seq), kind, body ->> '$.step' AS step, body ->> '$.applied' AS applied
    FROM events WHERE kind IN ('step.completed', 'step.failed') GROUP BY 1
) AS tried ON tried.id = accepted.key
WHERE accepted.kind = 'example.accepted';

-- state: committed, failed, removed (an old one that made room).
CREATE VIEW checkpoints AS
SELECT body ->> '$.step' AS step, body ->> '$.path' AS path,
       CASE
           WHEN kind = 'checkpoint.failed' THEN 'failed'
           WHEN EXISTS (
               SELECT 1 FROM events AS later
               WHERE later.kind = 'checkpoint.removed' AND later.seq > events.seq
                 AND later.body ->> '$.path' = events.body ->> '$.path'
           ) THEN 'removed'
           ELSE 'committed'
       END AS state,
       body ->> '$.fingerprint' AS fingerprint, body ->> '$.bytes' AS bytes, body ->> '$.seconds' AS seconds,
       body ->> '$.reason' AS reason,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind IN ('checkpoint.committed', 'checkpoint.failed');

-- Files, as far as they were read. What came over the socket or HTTP has no position and is not here.
CREATE VIEW sources AS
SELECT discovered.key AS source, coalesce(taken.path, discovered.body ->> '$.path') AS path,
       coalesce(taken."offset", 0) AS "offset", coalesce(taken.line, 0) AS line,
       coalesce(taken.accepted, 0) AS accepted, coalesce(taken.duplicates, 0) AS duplicates,
       coalesce(taken.rejected, 0) AS rejected, discovered.body ->> '$.replaces' AS replaces,
       strftime('%Y-%m-%dT%H:%M:%fZ', discovered.at_ns / 1e9, 'unixepoch') AS at, discovered.seq
FROM events AS discovered
LEFT JOIN (
    SELECT key AS id, max(seq), body ->> '$.path' AS path, body ->> '$.offset' AS "offset", body ->> '$.line' AS line,
           sum(body ->> '$.accepted') AS accepted, sum(body ->> '$.duplicates') AS duplicates,
           sum(body ->> '$.rejected') AS rejected
    FROM events WHERE kind = 'source.consumed' GROUP BY key
) AS taken ON taken.id = discovered.key
WHERE discovered.kind = 'source.discovered';

-- Starts and exits of the two child processes.
CREATE VIEW children AS
SELECT seq, substr(kind, 1, instr(kind, '.') - 1) AS child, substr(kind, instr(kind, '.') + 1) AS event,
       body ->> '$.pid' AS pid, body ->> '$.attempt' AS attempt, body ->> '$.code' AS code, body ->> '$.reason' AS reason,
       body ->> '$.expected' AS expected, body ->> '$.refused' AS refused,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
FROM events
WHERE kind IN ('engine.spawned', 'engine.ready', 'engine.exited',
               'trainer.spawned', 'trainer.bound', 'trainer.attached', 'trainer.exited');
