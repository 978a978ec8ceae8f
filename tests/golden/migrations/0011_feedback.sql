-- What people said of answers that the engine gave.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 11;  -- number of the newest migration applied

-- holds: nothing was said of the answer since
CREATE VIEW feedback AS
SELECT said.key AS response, said.body ->> '$.rating' AS rating, said.body ->> '$.by' AS given_by,
       nullif(said.body ->> '$.comment', '') AS comment, nullif(said.body ->> '$.answer', '') AS answer,
       nullif(said.body ->> '$.correction', '') AS correction, nullif(said.body ->> '$.example', '') AS example,
       nullif(said.body ->> '$.weights', '') AS weights, said.seq = newest.seq AS holds,
       strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch') AS at, said.seq
FROM events AS said
JOIN (SELECT key, max(seq) AS seq FROM events WHERE kind = 'feedback.given' GROUP BY key) AS newest USING (key)
WHERE said.kind = 'feedback.given';
