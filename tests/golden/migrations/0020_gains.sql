-- How much better learned lines are said: the view `gains`.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 20;  -- number of the newest migration applied

-- The newest score of each example after it was learned, of which neither the step that learned it nor the last step of the weights that
-- were asked was taken back. Losses: mean of -log p over its learned tokens, nats. weak: less than a tenth below what it was, and above 0.5.
CREATE VIEW gains AS
WITH undone AS (
    SELECT step.value AS step FROM events, json_each(events.body, '$.undone') AS step WHERE events.kind = 'rollback.started'
)
SELECT example, seq, step, before, after, tokens, weights_version, after > 0.5 AND before - after < 0.1 * before AS weak, at
FROM (
    SELECT CAST(score.value ->> '$.example' AS TEXT) AS example, max(said.seq) AS seq, score.value ->> '$.learned_in' AS step,
           score.value ->> '$.before' AS before, score.value ->> '$.after' AS after, score.value ->> '$.tokens' AS tokens,
           said.body ->> '$.step' AS weights_version, strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch') AS at
    FROM events AS said, json_each(said.body, '$.scores') AS score
    WHERE said.kind = 'example.rescored' AND score.value ->> '$.after' IS NOT NULL
      AND score.value ->> '$.learned_in' NOT IN (SELECT step FROM undone)
      AND said.body ->> '$.step' NOT IN (SELECT step FROM undone)
    GROUP BY 1
);
