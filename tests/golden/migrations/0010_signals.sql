-- What logs show about answers (signal.flagged). `signal_index` is derived from its keys (and from `signals` of example.carried),
-- as example_index is, and is written as late: a signal is recorded once.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 10;  -- number of the newest migration applied

CREATE TABLE signal_index (
    id  TEXT PRIMARY KEY,               -- of a signal
    seq INTEGER NOT NULL                -- the event that has it
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('signals_indexed_seq', '0');

CREATE VIEW signals AS
SELECT key AS id, body ->> '$.example' AS example, body ->> '$.kind' AS kind, body ->> '$.polarity' AS polarity,
       body ->> '$.strength' AS strength, body ->> '$.quote' AS quote, body ->> '$.session' AS session,
       coalesce(body ->> '$.records', '[]') AS records, body ->> '$.source' AS source, body ->> '$.line' AS line,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'signal.flagged';
