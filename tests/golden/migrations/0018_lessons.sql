-- What is taught until it is known: the view `lessons` has each lesson with its figures, `lesson_answers` every answer that was asked of
-- the model for one.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 18;  -- number of the newest migration applied

-- state: as the last event says. A known lesson that is asked again (begun in the stage `again`) is known meanwhile. In a journal that
-- goes on from an archive, steps count on from what that says (lesson.carried), and so do figures until there are new ones.
CREATE VIEW lessons AS
WITH moved AS (  -- max() says which row the plain columns are of
    SELECT key, max(seq) AS seq, body ->> '$.reason' AS reason, body ->> '$.by' AS by,
           CASE kind WHEN 'lesson.carried' THEN body ->> '$.state' WHEN 'lesson.begun' THEN 'practising'
                     WHEN 'lesson.requested' THEN 'waiting' WHEN 'lesson.given-up' THEN 'given up' ELSE substr(kind, 8) END AS state
    FROM events
    WHERE kind IN ('lesson.known', 'lesson.fading', 'lesson.requested', 'lesson.replaced', 'lesson.given-up', 'lesson.carried')
       OR (kind = 'lesson.begun' AND body ->> '$.stage' <> 'again')
    GROUP BY key
), measured AS (
    SELECT key, max(seq) AS seq, body FROM events WHERE kind IN ('lesson.known', 'lesson.given-up', 'lesson.carried') GROUP BY key
), carried AS (
    SELECT key, max(seq) AS seq, body ->> '$.steps' AS steps FROM events WHERE kind = 'lesson.carried' GROUP BY key
), practised AS (
    SELECT done.key, sum(done.body ->> '$.step' > 0) AS steps
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
       strftime('%Y-%m-%dT%H:%M:%fZ', given.at_ns / 1e9, 'unixepoch') AS at, given.seq
FROM (SELECT key, max(seq) AS seq, at_ns, body FROM events WHERE kind = 'lesson.given' GROUP BY key) AS given
LEFT JOIN moved ON moved.key = given.key
LEFT JOIN measured ON measured.key = given.key
LEFT JOIN carried ON carried.key = given.key
LEFT JOIN practised ON practised.key = given.key
LEFT JOIN worded ON worded.key = given.key;

CREATE VIEW lesson_answers AS
WITH worded AS (
    SELECT key, max(seq) AS seq, body FROM events WHERE kind = 'lesson.worded' GROUP BY key
)
SELECT CAST(asked.key AS TEXT) AS lesson, asked.body ->> '$.stage' AS stage, asked.body ->> '$.round' AS round,
       asked.body ->> '$.mode' AS mode, coalesce(said.value ->> '$.practice', 0) AS practice,
       worded.body ->> (CASE coalesce(said.value ->> '$.practice', 0) WHEN 1 THEN '$.worded.practice[' ELSE '$.worded.held_out[' END
                        || (said.value ->> '$.wording') || '].prompt') AS prompt,
       said.value ->> '$.text' AS answer, said.value ->> '$.passed' AS passed, said.value ->> '$.seed' AS seed,
       asked.body ->> '$.weights_version' AS weights_version,
       strftime('%Y-%m-%dT%H:%M:%fZ', asked.at_ns / 1e9, 'unixepoch') AS at, asked.seq
FROM events AS asked JOIN json_each(asked.body, '$.answers') AS said LEFT JOIN worded ON worded.key = asked.key
WHERE asked.kind = 'lesson.asked';
