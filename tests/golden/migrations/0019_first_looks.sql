-- Lessons of lines that are given directly: the view `examples` tells of a line that the model knew (example.looked), the view `lessons` of
-- which line a lesson was made.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 19;  -- number of the newest migration applied

DROP VIEW examples;

-- state: pending, trained, rejected; skipped: its loss was not finite or above its limit, or the model knew it; held: somebody has to decide
-- about it, or its step could not be run; undone: its step was taken back; withdrawn: somebody took it out of the queue; declined: somebody
-- decided against it; edited: another one is learned in its place; expired: nobody decided in time.
CREATE VIEW examples AS
SELECT accepted.key AS id, accepted.seq, accepted.body ->> '$.source' AS source, accepted.body ->> '$.line' AS line,
       coalesce(accepted.body ->> '$.tier', 'bulk') AS tier, accepted.body ->> '$.record' AS record,
       CASE
           WHEN refused.id IS NOT NULL THEN 'rejected'
           WHEN moved.seq > coalesce(tried.seq, 0) AND moved.kind = 'example.looked' THEN 'skipped'
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
           OR (kind = 'example.looked' AND body ->> '$.known')
    )
    GROUP BY 1
) AS moved ON moved.id = accepted.key
WHERE accepted.kind = 'example.accepted';

DROP VIEW lessons;

-- state: as the last event says. A known lesson that is asked again (begun in the stage `again`) is known meanwhile. In a journal that
-- goes on from an archive, steps count on from what that says (lesson.carried), and so do figures until there are new ones. example: the
-- line of which it was made. document: the name of the one that says it.
CREATE VIEW lessons AS
WITH moved AS (  -- max() says which row the plain columns are of
    SELECT key, max(seq) AS seq, body ->> '$.reason' AS reason, body ->> '$.by' AS by,
           CASE kind WHEN 'lesson.carried' THEN body ->> '$.state' WHEN 'lesson.begun' THEN 'practising'
                     WHEN 'lesson.requested' THEN 'waiting' WHEN 'lesson.put-off' THEN 'waiting'
                     WHEN 'lesson.given-up' THEN 'given up' ELSE substr(kind, 8) END AS state
    FROM events
    WHERE kind IN ('lesson.known', 'lesson.fading', 'lesson.requested', 'lesson.replaced', 'lesson.given-up', 'lesson.carried',
                   'lesson.put-off')
       OR (kind = 'lesson.begun' AND body ->> '$.stage' <> 'again')
    GROUP BY key
), measured AS (
    SELECT key, max(seq) AS seq, body FROM events WHERE kind IN ('lesson.known', 'lesson.given-up', 'lesson.carried') GROUP BY key
), carried AS (
    SELECT key, max(seq) AS seq, body ->> '$.steps' AS steps FROM events WHERE kind = 'lesson.carried' GROUP BY key
), practised AS (
    SELECT done.key, count(DISTINCT nullif(done.body ->> '$.step', 0)) AS steps  -- one learns several wordings
    FROM events AS done LEFT JOIN carried ON carried.key = done.key
    WHERE done.kind = 'lesson.practised' AND done.seq > coalesce(carried.seq, 0) GROUP BY done.key
), worded AS (
    SELECT key, max(seq) AS seq, body ->> '$.worded.question' AS question, body ->> '$.worded.answer' AS answer
    FROM events WHERE kind = 'lesson.worded' GROUP BY key
)
SELECT CAST(given.key AS TEXT) AS lesson, coalesce(moved.state, 'waiting') AS state, nullif(moved.reason, '') AS reason,
       nullif(given.body ->> '$.given.statement', '') AS statement,
       coalesce(worded.question, nullif(given.body ->> '$.given.question', '')) AS question,
       coalesce(nullif(given.body ->> '$.given.answer', ''), worded.answer) AS answer,
       measured.body ->> '$.before.bare[0]' AS bare_before, measured.body ->> '$.before.bare[1]' AS bare_before_of,
       measured.body ->> '$.before.told[0]' AS told_before, measured.body ->> '$.before.told[1]' AS told_before_of,
       measured.body ->> '$.after[0]' AS bare_after, measured.body ->> '$.after[1]' AS bare_after_of,
       coalesce(carried.steps, 0) + coalesce(practised.steps, 0) AS steps,
       measured.body ->> '$.drift' AS drift, nullif(given.body ->> '$.replaces', '') AS replaces,
       CASE WHEN moved.state = 'replaced' THEN moved.by END AS replaced_by, given.body ->> '$.by' AS given_by,
       nullif(given.body ->> '$.example', '') AS example, nullif(given.body ->> '$.given.document', '') AS document,
       strftime('%Y-%m-%dT%H:%M:%fZ', given.at_ns / 1e9, 'unixepoch') AS at, given.seq
FROM (SELECT key, max(seq) AS seq, at_ns, body FROM events WHERE kind = 'lesson.given' GROUP BY key) AS given
LEFT JOIN moved ON moved.key = given.key
LEFT JOIN measured ON measured.key = given.key
LEFT JOIN carried ON carried.key = given.key
LEFT JOIN practised ON practised.key = given.key
LEFT JOIN worded ON worded.key = given.key;
