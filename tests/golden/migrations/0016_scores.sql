-- In the view `scores` a second score counts only while the step that learned the example stands, and the weights that said so.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 16;  -- number of the newest migration applied

DROP VIEW scores;

-- The newest score of each example of before it was learned, and after_*: the newest one of after that, with the step that learned it,
-- of which neither that step nor the last step of the weights was taken back.
-- Mean log-probabilities (natural logarithm, a token) of its last learned answer.
CREATE VIEW scores AS
WITH undone AS (
    SELECT step.value AS step FROM events, json_each(events.body, '$.undone') AS step WHERE events.kind = 'rollback.started'
)
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
    FROM events
    WHERE kind = 'example.scored' AND body ->> '$.after' > 0 AND body ->> '$.after' NOT IN (SELECT step FROM undone)
      AND body ->> '$.weights_version' NOT IN (SELECT step FROM undone)
    GROUP BY key
) AS later ON later.example = said.example;
