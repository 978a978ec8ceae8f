-- Answers and texts that are known, so that none is learned twice. Both tables are derived from `responses` and `signature` of
-- example.accepted (and `responses` of example.carried), as example_index is from its key, and are written as late. Examples of
-- before those fields were recorded are not in them: the daemon then knew examples by their whole records only.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 8;  -- number of the newest migration applied

CREATE TABLE response_index (
    id  TEXT PRIMARY KEY,               -- key of an answer
    seq INTEGER NOT NULL                -- the event with which it was to be learned
) STRICT, WITHOUT ROWID;

CREATE TABLE near_index (
    id  INTEGER PRIMARY KEY,            -- a band of a signature, as apollod/core/facts/intake/repeats.py numbers it
    seq INTEGER NOT NULL                -- the first event that has it
) STRICT;

INSERT INTO meta SELECT name, CAST((SELECT coalesce(max(seq), 0) FROM events) AS TEXT)
FROM (SELECT 'responses_indexed_seq' AS name UNION ALL SELECT 'near_indexed_seq');
