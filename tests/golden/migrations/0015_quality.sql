-- The view `quality` reads what measurements record: a row for each metric of each. The view `scores` tells the score of before an
-- example was learned from the one after.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 15;  -- number of the newest migration applied

DROP VIEW quality;

-- value: mean over the items that could be measured. drop: since the baseline, positive is worse; NULL for a baseline and for what may
-- raise no alarm. alarmed: 1 when this metric raised an alarm.
CREATE VIEW quality AS
SELECT CAST(said.body ->> '$.number' AS INTEGER) AS number, said.body ->> '$.why' AS why, said.body ->> '$.step' AS step,
       CAST(metric.key AS TEXT) AS metric, (SELECT avg(item.value) FROM json_each(metric.value) AS item) AS value,
       (SELECT count(*) FROM json_each(metric.value)) AS items,
       (SELECT after.value ->> '$.drop' FROM json_each(said.body, '$.after') AS after WHERE after.key = metric.key) AS "drop",
       (SELECT after.value ->> '$.margin' FROM json_each(said.body, '$.after') AS after WHERE after.key = metric.key) AS margin,
       EXISTS (
           SELECT 1 FROM events AS alarm, json_each(alarm.body, '$.metrics') AS worse
           WHERE alarm.seq = said.seq + 1 AND alarm.kind = 'quality.alarmed' AND worse.value = metric.key
       ) AS alarmed,
       coalesce(said.body ->> '$.share', 1.0) AS share,
       strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch') AS at, said.seq
FROM events AS said, json_each(said.body, '$.figures') AS metric WHERE said.kind = 'quality.measured';

DROP VIEW scores;

-- The newest score of each example of before it was learned, and after_*: the newest one of after that, with the step that learned it.
-- Mean log-probabilities (natural logarithm, a token) of its last learned answer.
CREATE VIEW scores AS
SELECT said.example, said.seq, said.divergence, said.with_context, said.without_context, said.tokens, said.weights_version,
       said.alternate, later.step AS after_step, later.with_context AS after_with_context,
       later.without_context AS after_without_context, said.at
FROM (
    SELECT CAST(key AS TEXT) AS example, max(seq) AS seq, body ->> '$.divergence' AS divergence,
           body ->> '$.with_context' AS with_context, body ->> '$.without_context' AS without_context, body ->> '$.tokens' AS tokens,
           body ->> '$.weights_version' AS weights_version, coalesce(body ->> '$.alternate', '') AS alternate,
           strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
    FROM events WHERE kind = 'example.scored' AND coalesce(body ->> '$.after', 0) = 0 GROUP BY key
) AS said LEFT JOIN (
    SELECT CAST(key AS TEXT) AS example, max(seq), body ->> '$.after' AS step, body ->> '$.with_context' AS with_context,
           body ->> '$.without_context' AS without_context
    FROM events WHERE kind = 'example.scored' AND body ->> '$.after' > 0 GROUP BY key
) AS later ON later.example = said.example;
