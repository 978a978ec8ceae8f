-- Steps that were taken back, and checkpoints as the model directory with a way back.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 4;  -- number of the newest migration applied

DROP VIEW steps;

-- undone: 1 when the step was taken back.
CREATE VIEW steps AS
SELECT body ->> '$.step' AS step, body ->> '$.parent' AS parent, body ->> '$.example' AS example,
       body ->> '$.loss' AS loss, body ->> '$.lr' AS lr, body ->> '$.grad_norm' AS grad_norm,
       body ->> '$.tokens' AS tokens, body ->> '$.targets' AS targets, body ->> '$.fingerprint' AS fingerprint,
       body ->> '$.seconds' AS seconds, body ->> '$.applied' AS applied, back.step IS NOT NULL AS undone,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events
LEFT JOIN (
    SELECT CAST(step.value AS TEXT) AS step FROM events, json_each(events.body, '$.undone') AS step
    WHERE events.kind = 'rollback.started' GROUP BY 1
) AS back ON back.step = events.key
WHERE kind = 'step.completed';

DROP VIEW examples;

-- state: pending, trained, rejected; skipped: its loss was not finite or above its limit; held: its step could not be run;
-- undone: its step was taken back, and it is not learned again unless somebody asks for it.
CREATE VIEW examples AS
SELECT accepted.key AS id, accepted.seq, accepted.body ->> '$.source' AS source, accepted.body ->> '$.line' AS line,
       coalesce(accepted.body ->> '$.tier', 'bulk') AS tier, accepted.body ->> '$.record' AS record,
       CASE
           WHEN refused.id IS NOT NULL THEN 'rejected'
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
LEFT JOIN (  -- taken back, or asked for again
    SELECT id, max(seq) AS seq, kind
    FROM (
        SELECT CAST(back.value AS TEXT) AS id, seq, kind FROM events, json_each(events.body, '$.examples') AS back
        WHERE events.kind = 'rollback.started'
        UNION ALL
        SELECT key, seq, kind FROM events WHERE kind = 'example.requeued'
    )
    GROUP BY 1
) AS moved ON moved.id = accepted.key
WHERE accepted.kind = 'example.accepted';

DROP VIEW checkpoints;

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
       body ->> '$.fingerprint' AS fingerprint, body ->> '$.bytes' AS bytes, body ->> '$.delta_bytes' AS delta_bytes,
       body ->> '$.written_bytes' AS written_bytes, body ->> '$.seconds' AS seconds, body ->> '$.held_s' AS held_s,
       body ->> '$.full' AS "full", body ->> '$.reason' AS reason,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind IN ('checkpoint.committed', 'checkpoint.failed');

-- state: requested, refused, started, completed.
CREATE VIEW rollbacks AS
SELECT wish.body ->> '$.to' AS step, begun.body ->> '$.from_step' AS from_step, substr(coalesce(done.kind, begun.kind, wish.kind), 10) AS state,
       json_array_length(begun.body, '$.undone') AS steps, json_array_length(begun.body, '$.examples') AS examples,
       done.body ->> '$.how' AS how, done.body ->> '$.replayed' AS replayed, done.body ->> '$.seconds' AS seconds,
       done.body ->> '$.reason' AS reason, wish.body ->> '$.by' AS "by",
       strftime('%Y-%m-%dT%H:%M:%fZ', wish.at_ns / 1e9, 'unixepoch') AS at, wish.seq
FROM events AS wish
LEFT JOIN events AS begun ON begun.kind = 'rollback.started' AND begun.seq = (
    SELECT min(seq) FROM events WHERE kind IN ('rollback.started', 'rollback.refused') AND seq > wish.seq
)
LEFT JOIN events AS done ON done.seq = (
    SELECT min(seq) FROM events WHERE kind IN ('rollback.completed', 'rollback.refused') AND seq > wish.seq
)
WHERE wish.kind = 'rollback.requested';
