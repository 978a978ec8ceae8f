-- The view `scores` tells how much of an answer was owed to text that was stripped; the view `reviews` tells of what expired whether
-- it was held or waited to be learned.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 13;  -- number of the newest migration applied

-- The newest score of each example. Mean log-probabilities (natural logarithm, a token) of its last learned answer.
CREATE VIEW scores AS
SELECT CAST(key AS TEXT) AS example, max(seq) AS seq, body ->> '$.divergence' AS divergence,
       body ->> '$.with_context' AS with_context, body ->> '$.without_context' AS without_context, body ->> '$.tokens' AS tokens,
       body ->> '$.weights_version' AS weights_version, coalesce(body ->> '$.alternate', '') AS alternate,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
FROM events WHERE kind = 'example.scored' GROUP BY key;

DROP VIEW reviews;

-- decision: held, approved, declined, edited, expired. by: who decided; empty: the rule of a source, or time.
CREATE VIEW reviews AS
SELECT seq, CAST(key AS TEXT) AS example, substr(kind, length('example.') + 1) AS decision, coalesce(body ->> '$.by', '') AS by,
       coalesce(body ->> '$.reason', '') AS reason, body ->> '$.waits_for' AS waits_for, body ->> '$.into' AS replaced_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
FROM events WHERE kind IN ('example.held', 'example.approved', 'example.declined', 'example.edited')
UNION ALL
SELECT seq, CAST(gone.value AS TEXT), 'expired', '',
       CASE WHEN coalesce(body ->> '$.waiting', 0) THEN 'it waited too long to be learned' ELSE 'nobody decided' END, NULL, NULL,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch')
FROM events, json_each(events.body, '$.examples') AS gone WHERE events.kind = 'example.expired';
