-- What is learned by dreaming: the view `dreams` tells of each dream's pattern and purpose, of how it ended and what came of it;
-- `patterns` how far each pattern is; `dream_tests` of every test. The view `verdicts` has what judges said of dreamt answers.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 14;  -- number of the newest migration applied

DROP VIEW dreams;

-- state: the last thing that happened in its course: requested, imagined, answered, judged, trained, tested; or how it ended: settled,
-- abandoned. Tests of rounds over the held-out scenarios come later and are not of its course.
CREATE VIEW dreams AS
SELECT CAST(begun.key AS TEXT) AS dream, begun.body ->> '$.pattern' AS pattern, begun.body ->> '$.purpose' AS purpose,
       coalesce(begun.body ->> '$.mode', 'bare') AS mode, nullif(begun.body ->> '$.contrast', '') AS contrast,
       nullif(begun.body ->> '$.of', '') AS variation_of, coalesce(course.state, 'requested') AS state,
       CASE WHEN course.state = 'abandoned' THEN course.reason END AS reason, said.verdict, course.example, course.step,
       shown.passed, coalesce(course.tokens, 0) AS tokens,
       strftime('%Y-%m-%dT%H:%M:%fZ', begun.at_ns / 1e9, 'unixepoch') AS at, begun.seq
FROM events AS begun
LEFT JOIN (  -- max() alone says which row the plain columns are of; example and step stand in one event each
    SELECT key, max(seq), substr(kind, 7) AS state, body ->> '$.reason' AS reason, sum(body ->> '$.tokens') AS tokens,
           group_concat(DISTINCT nullif(body ->> '$.example', '')) AS example, sum(body ->> '$.step') AS step
    FROM events
    WHERE kind IN ('dream.imagined', 'dream.answered', 'dream.judged', 'dream.trained', 'dream.settled', 'dream.abandoned')
       OR (kind = 'dream.tested' AND coalesce(body ->> '$.round', '') = '')
    GROUP BY key
) AS course ON course.key = begun.key
LEFT JOIN (
    SELECT key, max(seq), body ->> '$.verdict' AS verdict FROM events WHERE kind = 'dream.judged' GROUP BY key
) AS said ON said.key = begun.key
LEFT JOIN (
    SELECT key, max(seq), body ->> '$.passed' AS passed FROM events
    WHERE kind = 'dream.tested' AND body ->> '$.mode' = 'bare' GROUP BY key
) AS shown ON shown.key = begun.key
WHERE begun.kind = 'dream.requested';

-- round: null for a variation; baseline, final N, recheck N for a held-out scenario.
CREATE VIEW dream_tests AS
SELECT CAST(key AS TEXT) AS dream, body ->> '$.pattern' AS pattern, nullif(body ->> '$.round', '') AS round,
       body ->> '$.mode' AS mode, nullif(body ->> '$.contrast', '') AS contrast, body ->> '$.passed' AS passed,
       body ->> '$.answer' AS answer, body ->> '$.by' AS "by", body ->> '$.reason' AS reason,
       body ->> '$.weights_version' AS weights_version, coalesce(body ->> '$.tokens', 0) AS tokens,
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
    WHERE made.round IS NOT NULL GROUP BY added.name, made.round, rollbacks, made.dream, made.mode
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

DROP VIEW verdicts;

-- agreed: of a planted case, whether the verdict is the right one. What is said of a dream's answer is said by the judge that was
-- configured last.
CREATE VIEW verdicts AS
SELECT nullif(body ->> '$.dream', '') AS dream, nullif(body ->> '$.example', '') AS example, nullif(body ->> '$.case', '') AS "case",
       body ->> '$.verdict' AS verdict, nullif(body ->> '$.expected', '') AS expected,
       body ->> '$.verdict' = nullif(body ->> '$.expected', '') AS agreed,
       body ->> '$.by' AS "by", body ->> '$.reason' AS reason, body ->> '$.quote' AS quote, body ->> '$.better' AS better,
       nullif(body ->> '$.into', '') AS "into", body ->> '$.votes' AS votes, body ->> '$.attempt' AS attempt,
       body ->> '$.model' AS model, body ->> '$.prompt_hash' AS prompt_hash, body ->> '$.weights_version' AS weights_version,
       body ->> '$.prompt_tokens' AS prompt_tokens, body ->> '$.completion_tokens' AS completion_tokens,
       body ->> '$.seconds' AS seconds, strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'verdict.given'
UNION ALL
SELECT CAST(said.key AS TEXT), NULL, NULL, said.body ->> '$.verdict', NULL, NULL, said.body ->> '$.by', said.body ->> '$.reason',
       said.body ->> '$.quote', said.body ->> '$.better', nullif(said.body ->> '$.example', ''), said.body ->> '$.votes', NULL,
       who.body ->> '$.model', who.body ->> '$.prompt_hash', NULL, NULL, NULL,
       said.body ->> '$.seconds', strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch'), said.seq
FROM events AS said
LEFT JOIN events AS who ON who.seq = (
    SELECT max(configured.seq) FROM events AS configured WHERE configured.kind = 'judge.configured' AND configured.seq < said.seq
)
WHERE said.kind = 'dream.judged' AND said.body ->> '$.by' = 'judge';
