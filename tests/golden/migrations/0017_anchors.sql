-- What steps hold: the view `anchors` tells of each answer that was frozen, how often steps held it, and how far the model was from it.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 17;  -- number of the newest migration applied

-- moved, moved_max: divergence in nats a token when it was held last, and the largest ever; NULL: it was not held by a step that wrote
-- something and was not taken back. Materialised, so that each join has an index.
CREATE VIEW anchors AS
WITH undone AS MATERIALIZED (
    SELECT step.value AS step FROM events, json_each(events.body, '$.undone') AS step WHERE events.kind = 'rollback.started'
), done AS MATERIALIZED (
    SELECT CAST(key AS INTEGER) AS step, body -> '$.held' AS held FROM events WHERE kind = 'step.completed'
), holding AS MATERIALIZED (
    SELECT held.value AS anchor, done.step, done.held ->> ('$[' || held.key || ']') AS moved
    FROM events AS begun, json_each(begun.body, '$.held') AS held JOIN done ON done.step = CAST(begun.key AS INTEGER)
    WHERE begun.kind = 'step.started' AND done.step NOT IN (SELECT step FROM undone)
), told AS MATERIALIZED (
    SELECT anchor, count(*) AS steps, max(step) AS last_step, max(moved) AS moved_max FROM holding WHERE moved IS NOT NULL GROUP BY anchor
), encoded AS MATERIALIZED (
    SELECT CAST(key AS TEXT) AS anchor, body ->> '$.tokens' AS tokens FROM events WHERE kind = 'anchor.encoded'
), retired AS MATERIALIZED (
    SELECT one.value AS anchor, body ->> '$.reason' AS reason FROM events, json_each(body, '$.anchors') AS one
    WHERE kind = 'anchor.retired'
)
SELECT CAST(frozen.key AS TEXT) AS anchor, frozen.body ->> '$.sort' AS sort, nullif(frozen.body ->> '$.lesson', '') AS lesson,
       frozen.body ->> '$.wanted' AS wanted, frozen.body -> '$.record' AS record, frozen.body ->> '$.teacher' AS teacher,
       frozen.body ->> '$.weights_version' AS weights_version, encoded.tokens, coalesce(told.steps, 0) AS steps, told.last_step,
       told.moved_max, last.moved, retired.reason AS retired,
       strftime('%Y-%m-%dT%H:%M:%fZ', frozen.at_ns / 1e9, 'unixepoch') AS at, frozen.seq
FROM events AS frozen
LEFT JOIN encoded ON encoded.anchor = CAST(frozen.key AS TEXT)
LEFT JOIN told ON told.anchor = CAST(frozen.key AS TEXT)
LEFT JOIN holding AS last ON last.anchor = told.anchor AND last.step = told.last_step
LEFT JOIN retired ON retired.anchor = CAST(frozen.key AS TEXT)
WHERE frozen.kind = 'anchor.frozen';
