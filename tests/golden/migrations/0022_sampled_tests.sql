-- Tests by sampled answers: the view `dream_tests` has their number, and in which surrounding each test was made; `patterns` counts the
-- tests of the most likely answers, as before.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 22;  -- number of the newest migration applied

DROP VIEW patterns;

DROP VIEW dream_tests;

-- round: null for a variation; baseline, shown, final N, recheck N for a held-out scenario. sample: 0: of the most likely answer; n: of the
-- nth that was sampled in this mode and round.
CREATE VIEW dream_tests AS
SELECT CAST(key AS TEXT) AS dream, body ->> '$.pattern' AS pattern, nullif(body ->> '$.round', '') AS round,
       body ->> '$.mode' AS mode, nullif(body ->> '$.contrast', '') AS contrast, body ->> '$.passed' AS passed,
       body ->> '$.answer' AS answer, body ->> '$.by' AS "by", body ->> '$.reason' AS reason,
       body ->> '$.weights_version' AS weights_version, coalesce(body ->> '$.surrounding', 'none') AS surrounding,
       coalesce(body ->> '$.sample', 0) AS sample, coalesce(body ->> '$.tokens', 0) AS tokens,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'dream.tested';

-- One row for every name, as it was added last. Of a round of tests only one that is whole counts, which is one with as many tests in
-- contrast as there are held-out scenarios. 10 is what an addition means that does not say how many these are. In a journal that goes
-- on from an archive, counts go on from what that says (pattern.carried).
CREATE VIEW patterns AS
WITH added AS (
    SELECT CAST(key AS TEXT) AS name, max(seq) AS seq, at_ns, body FROM events WHERE kind = 'pattern.added' GROUP BY key
), carried AS (
    SELECT added.name, carried.seq, carried.body FROM events AS carried JOIN added ON added.name = carried.key AND carried.seq > added.seq
    WHERE carried.kind = 'pattern.carried'
), moved AS (
    SELECT key, max(seq) AS seq, kind, body ->> '$.reason' AS reason FROM events
    WHERE kind IN ('pattern.settled', 'pattern.unsettled', 'pattern.retired') GROUP BY key
), tests AS (  -- the newest one of each dream and mode. A round that is made again after a rollback may have its name again
    SELECT added.name, made.round, made.dream, made.mode, max(made.seq) AS seq, made.passed,
           CASE made.round WHEN 'baseline' THEN 0 ELSE (
               SELECT count(*) FROM events WHERE events.kind = 'rollback.started' AND events.seq < made.seq
           ) END AS rollbacks
    FROM added JOIN dream_tests AS made ON made.pattern = added.name AND made.seq > added.seq
    WHERE made.round IS NOT NULL AND made.sample = 0 GROUP BY added.name, made.round, rollbacks, made.dream, made.mode
), rounds AS (
    SELECT name, round, max(seq) AS seq, sum(mode = 'contrast') AS contrasts,
           sum(mode = 'bare' AND passed) AS bare, sum(mode = 'told' AND passed) AS told,
           sum(mode = 'contrast' AND passed) AS contrast
    FROM tests GROUP BY name, round, rollbacks
), whole AS (
    SELECT rounds.* FROM rounds JOIN added USING (name)
    WHERE contrasts >= coalesce(added.body ->> '$.pattern.held_out', 10)
), last AS (
    SELECT name, max(seq), round, bare, contrast FROM whole WHERE round <> 'baseline' GROUP BY name
), asked AS (
    SELECT key, body ->> '$.pattern' AS pattern FROM events WHERE kind = 'dream.requested'
), spent AS (
    SELECT added.name, sum(done.kind = 'dream.requested') AS dreams, sum(done.kind = 'dream.trained') AS practices,
           sum(coalesce(done.body ->> '$.tokens', 0)) AS tokens
    FROM events AS done JOIN asked ON asked.key = done.key JOIN added ON added.name = asked.pattern LEFT JOIN carried USING (name)
    WHERE done.kind IN ('dream.requested', 'dream.imagined', 'dream.answered', 'dream.judged', 'dream.trained', 'dream.tested')
      AND done.seq > coalesce(carried.seq, added.seq)
    GROUP BY 1
)
SELECT added.name, CASE WHEN moved.kind IS NULL OR moved.kind = 'pattern.unsettled' THEN 'active' ELSE substr(moved.kind, 9) END AS state,
       moved.reason, coalesce(added.body ->> '$.pattern.held_out', 10) AS held_out,
       coalesce(baseline.bare, carried.body ->> '$.baseline.bare[0]') AS baseline_bare,
       coalesce(baseline.told, carried.body ->> '$.baseline.told[0]') AS baseline_told,
       coalesce(baseline.contrast, carried.body ->> '$.baseline.contrast[0]') AS baseline_contrast, last.round AS last_round,
       coalesce(last.bare, carried.body ->> '$.final.bare[0]') AS last_bare,
       coalesce(last.contrast, carried.body ->> '$.final.contrast[0]') AS last_contrast,
       coalesce(carried.body ->> '$.dreams', 0) + coalesce(spent.dreams, 0) AS dreams,
       coalesce(carried.body ->> '$.practices', 0) + coalesce(spent.practices, 0) AS practices,
       coalesce(carried.body ->> '$.tokens', 0) + coalesce(spent.tokens, 0) AS tokens,
       added.body ->> '$.by' AS "by", strftime('%Y-%m-%dT%H:%M:%fZ', added.at_ns / 1e9, 'unixepoch') AS added_at, added.seq
FROM added
LEFT JOIN carried USING (name)
LEFT JOIN moved ON moved.key = added.name AND moved.seq > added.seq
LEFT JOIN whole AS baseline ON baseline.name = added.name AND baseline.round = 'baseline'
LEFT JOIN last ON last.name = added.name
LEFT JOIN spent ON spent.name = added.name;
