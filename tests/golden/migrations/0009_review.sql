-- The view `examples` tells of examples that wait for a decision, and of what was decided against them; the view `reviews` of the
-- decisions.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 9;  -- number of the newest migration applied

DROP VIEW examples;

-- state: pending, trained, rejected; skipped: its loss was not finite or above its limit; held: somebody has to decide about it, or its
-- step could not be run; undone: its step was taken back; withdrawn: somebody took it out of the queue; declined: somebody decided
-- against it; edited: another one is learned in its place; expired: nobody decided in time.
CREATE VIEW examples AS
SELECT accepted.key AS id, accepted.seq, accepted.body ->> '$.source' AS source, accepted.body ->> '$.line' AS line,
       coalesce(accepted.body ->> '$.tier', 'bulk') AS tier, accepted.body ->> '$.record' AS record,
       CASE
           WHEN refused.id IS NOT NULL THEN 'rejected'
           WHEN moved.seq > coalesce(tried.seq, 0) AND moved.kind IN
               ('example.withdrawn', 'example.held', 'example.declined', 'example.edited', 'example.expired')
               THEN substr(moved.kind, length('example.') + 1)
           WHEN moved.seq > tried.seq AND moved.kind = 'rollback.started' THEN 'undone'
           WHEN moved.seq > tried.seq THEN 'pending'
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
    SELECT id, max(seq) AS seq, kind, step, applied
    FROM (
        SELECT CAST(body ->> '$.example' AS TEXT) AS id, seq, kind, body ->> '$.step' AS step, body ->> '$.applied' AS applied
        FROM events WHERE kind IN ('step.completed', 'step.failed') AND coalesce(body ->> '$.apart', 0) = 0
        UNION ALL  -- a step of several examples: the others
        SELECT CAST(other.value AS TEXT), seq, kind, body ->> '$.step', body ->> '$.applied'
        FROM events, json_each(events.body, '$.examples') AS other
        WHERE events.kind = 'step.completed' AND other.key > 0
    )
    GROUP BY 1
) AS tried ON tried.id = accepted.key
LEFT JOIN (  -- taken back, taken out of the queue, asked for again, or decided about
    SELECT id, max(seq) AS seq, kind
    FROM (
        SELECT CAST(back.value AS TEXT) AS id, seq, kind FROM events, json_each(events.body, '$.examples') AS back
        WHERE events.kind IN ('rollback.started', 'example.withdrawn', 'example.expired')
        UNION ALL
        SELECT key, seq, kind FROM events
        WHERE kind IN ('example.requeued', 'example.held', 'example.approved', 'example.declined', 'example.edited')
    )
    GROUP BY 1
) AS moved ON moved.id = accepted.key
WHERE accepted.kind = 'example.accepted';

-- decision: held, approved, declined, edited, expired. by: who decided; empty: the rule of a source, or time.
CREATE VIEW reviews AS
SELECT seq, CAST(key AS TEXT) AS example, substr(kind, length('example.') + 1) AS decision, coalesce(body ->> '$.by', '') AS by,
       coalesce(body ->> '$.reason', '') AS reason, body ->> '$.waits_for' AS waits_for, body ->> '$.into' AS replaced_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
FROM events WHERE kind IN ('example.held', 'example.approved', 'example.declined', 'example.edited')
UNION ALL
SELECT seq, CAST(gone.value AS TEXT), 'expired', '', 'nobody decided', NULL, NULL,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch')
FROM events, json_each(events.body, '$.examples') AS gone WHERE events.kind = 'example.expired';
