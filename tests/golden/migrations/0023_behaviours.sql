-- Behaviours are lessons: the view `lessons` has patterns among the others, with the kind and the state of each.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 23;  -- number of the newest migration applied

DROP VIEW lessons;

-- kind and state: as apollod/core/facts/lessons/kinds.py has them. The state of a fact is as its last event says; a known lesson that is asked
-- again (begun in the stage `again`) is known meanwhile. In a journal that goes on from an archive, steps count on from what that says
-- (lesson.carried), and so do figures until there are new ones. example: the line of which it was made. document: the name of the one
-- that says it. A definition of a behaviour that another one took the name of has a row of its own, without figures.
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
), defined AS (  -- next: the definition that had this name then
    SELECT CAST(key AS TEXT) AS name, seq, at_ns, body, body -> '$.pattern' AS pattern,
           lead(body -> '$.pattern') OVER (PARTITION BY key ORDER BY seq) AS next
    FROM events WHERE kind = 'pattern.added'
), moved_to AS (
    SELECT name, max(events.seq) AS seq, CASE kind WHEN 'pattern.settled' THEN 'known' WHEN 'pattern.unsettled' THEN 'fading'
           WHEN 'pattern.retired' THEN 'given up' ELSE events.body ->> '$.state' END AS state
    FROM defined JOIN events ON events.key = name AND events.seq > defined.seq
    WHERE next IS NULL AND (kind IN ('pattern.settled', 'pattern.unsettled', 'pattern.retired')
                            OR (kind = 'pattern.carried' AND coalesce(events.body ->> '$.state', '') <> ''))
    GROUP BY name
), dreamt AS (
    SELECT body ->> '$.pattern' AS name, max(seq) AS seq FROM events WHERE kind IN ('dream.requested', 'dream.tested') GROUP BY 1
)
SELECT CAST(given.key AS TEXT) AS lesson,
       CASE WHEN nullif(given.body ->> '$.given.document', '') IS NOT NULL THEN 'document'
            WHEN nullif(given.body ->> '$.given.statement', '') IS NOT NULL THEN 'statement' ELSE 'correction' END AS kind,
       coalesce(moved.state, 'waiting') AS state, nullif(moved.reason, '') AS reason,
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
LEFT JOIN worded ON worded.key = given.key
UNION ALL
SELECT defined.name, 'behaviour',
       CASE WHEN patterns.seq IS NULL THEN 'replaced'
            WHEN coalesce(moved_to.state, 'waiting') NOT IN ('waiting', 'fading') THEN moved_to.state
            WHEN dreamt.seq > coalesce(moved_to.seq, defined.seq) THEN 'practising'
            ELSE coalesce(moved_to.state, 'waiting') END,
       nullif(patterns.reason, ''), defined.pattern ->> '$.instruction', NULL, NULL,
       patterns.baseline_bare, CASE WHEN patterns.baseline_bare IS NOT NULL THEN patterns.held_out END,
       patterns.baseline_told, CASE WHEN patterns.baseline_told IS NOT NULL THEN patterns.held_out END,
       patterns.last_bare, CASE WHEN patterns.last_bare IS NOT NULL THEN patterns.held_out END,
       patterns.practices, NULL, NULL, CASE WHEN patterns.seq IS NULL THEN defined.name END,
       defined.body ->> '$.by', NULL, NULL, strftime('%Y-%m-%dT%H:%M:%fZ', defined.at_ns / 1e9, 'unixepoch'), defined.seq
FROM defined
LEFT JOIN patterns ON patterns.seq = defined.seq
LEFT JOIN moved_to ON moved_to.name = patterns.name
LEFT JOIN dreamt ON dreamt.name = patterns.name
WHERE patterns.seq IS NOT NULL OR defined.pattern <> defined.next;
