-- The view `sources` has one row for every source, also in journals in which one was discovered twice: earlier versions forgot the
-- position of a file that was rotated away, and read it again after a restart.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 5;  -- number of the newest migration applied

DROP VIEW sources;

-- Files, as far as they were read. What came over the socket or HTTP has no position and is not here.
CREATE VIEW sources AS
SELECT discovered.key AS source, coalesce(taken.path, discovered.path) AS path,
       coalesce(taken."offset", 0) AS "offset", coalesce(taken.line, 0) AS line,
       coalesce(taken.accepted, 0) AS accepted, coalesce(taken.duplicates, 0) AS duplicates,
       coalesce(taken.rejected, 0) AS rejected, discovered.replaces,
       strftime('%Y-%m-%dT%H:%M:%fZ', discovered.at_ns / 1e9, 'unixepoch') AS at, discovered.seq
FROM (
    SELECT key, min(seq) AS seq, at_ns, body ->> '$.path' AS path, body ->> '$.replaces' AS replaces
    FROM events WHERE kind = 'source.discovered' GROUP BY key
) AS discovered
LEFT JOIN (
    SELECT key AS id, max(seq), body ->> '$.path' AS path, body ->> '$.offset' AS "offset", body ->> '$.line' AS line,
           sum(body ->> '$.accepted') AS accepted, sum(body ->> '$.duplicates') AS duplicates,
           sum(body ->> '$.rejected') AS rejected
    FROM events WHERE kind = 'source.consumed' GROUP BY key
) AS taken ON taken.id = discovered.key;
