-- Everything that is derived from `events`: indexes, tables, views. apollod/adapters/journal/schema.py applies this
-- file at a start when its digest is not the one in the journal: every view is dropped and made again; an index or a
-- table only where its statement is another one, and the index tables are then filled from the events. All of it is one
-- transaction.
--
-- A change is an edit of this file. Views and columns are only ever added (docs/journal.md). To have a table filled
-- again whose rows are made in another way by now, change its statement, if only a comment in it.

CREATE INDEX events_kind ON events (kind);  -- with the rowid at its end: (kind, seq)

-- Each step reads the answers that it holds by their ids: a tenth of a second without an index with ten thousand
-- lessons.
CREATE INDEX events_anchor ON events (key) WHERE kind IN ('anchor.frozen', 'anchor.encoded');

-- Events that name the file of a reference, by example. An index may not use JSON operators in an untrusted schema.
CREATE INDEX events_reference ON events (key)
WHERE kind = 'example.encoded' AND body GLOB '*"reference":"[0-9a-f]*';

-- Folded states, so that a start need not read everything. A cache: may be emptied at any time.
CREATE TABLE snapshots (
    seq        INTEGER PRIMARY KEY,     -- the last event that is folded in
    at_ns      INTEGER NOT NULL,
    code       TEXT NOT NULL,           -- version of the fold that made it
    state      BLOB NOT NULL,
    state_hash BLOB NOT NULL            -- SHA-256 of the event's hash and the state
) STRICT;

-- Index tables: accepted examples, their answers and near texts, recorded signals, each with the first event that has
-- it, so that nothing is learned or recorded twice. Written late, a slice at a time and in their own order, by
-- apollod/adapters/journal/known_examples.py: a random key with every append would cost a page each.

CREATE TABLE example_index (
    id  TEXT PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE response_index (
    id  TEXT PRIMARY KEY,               -- key of an answer
    seq INTEGER NOT NULL                -- the event with which it was to be learned
) STRICT, WITHOUT ROWID;

CREATE TABLE near_index (
    id  INTEGER PRIMARY KEY,            -- a band of a signature, as apollod/core/facts/intake/repeats.py numbers it
    seq INTEGER NOT NULL                -- the first event that has it
) STRICT;

CREATE TABLE signal_index (
    id  TEXT PRIMARY KEY,               -- of a signal
    seq INTEGER NOT NULL                -- the event that has it
) STRICT, WITHOUT ROWID;

-- Views: the common questions as one line of SQL. `at` is UTC, ISO-8601. docs/journal.md describes each column.

-- Every accepted example with its event: example_index, and the events after the last one that is in it.
CREATE VIEW known_examples AS
SELECT id, seq FROM example_index
UNION ALL
SELECT key, seq FROM events
WHERE kind = 'example.accepted' AND seq > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'indexed_seq')
  AND NOT EXISTS (SELECT 1 FROM example_index WHERE id = events.key)
UNION ALL
SELECT CAST(carried.value AS TEXT), events.seq FROM events, json_each(events.body, '$.examples') AS carried
WHERE events.kind = 'example.carried'
  AND events.seq > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'indexed_seq')
  AND NOT EXISTS (SELECT 1 FROM example_index WHERE id = carried.value);

-- Files, as far as they were read; one row also where one was discovered twice. What came over the socket or HTTP has
-- no position and is not here.
CREATE VIEW sources AS
SELECT discovered.key AS source, coalesce(taken.path, discovered.path) AS path,
       coalesce(taken."offset", 0) AS "offset", coalesce(taken.line, 0) AS line,
       coalesce(taken.accepted, 0) AS accepted, coalesce(taken.duplicates, 0) AS duplicates,
       coalesce(taken.rejected, 0) AS rejected, discovered.replaces,
       strftime('%Y-%m-%dT%H:%M:%fZ', discovered.at_ns / 1e9, 'unixepoch') AS at, discovered.seq
FROM (
    SELECT key, min(seq) AS seq, at_ns, body ->> '$.path' AS path, body ->> '$.replaces' AS replaces
    FROM events WHERE kind = 'source.discovered' GROUP BY key
) AS discovered
LEFT JOIN (
    SELECT key AS id, max(seq), body ->> '$.path' AS path, body ->> '$.offset' AS "offset", body ->> '$.line' AS line,
           sum(body ->> '$.accepted') AS accepted, sum(body ->> '$.duplicates') AS duplicates,
           sum(body ->> '$.rejected') AS rejected
    FROM events WHERE kind = 'source.consumed' GROUP BY key
) AS taken ON taken.id = discovered.key;

-- state: that of the last event that moved the example, by the table in apollod/core/example_state.py, from which
-- schema.py puts a row here for each kind: state, where the field is true or there is none, otherwise, and unsaid, the
-- value of a field that an event lacks. No state: the event changes none. step: the last one that was tried.
CREATE VIEW examples AS
WITH rule (kind, field, unsaid, state, otherwise) AS (
    VALUES {EXAMPLE_RULES}
), moved AS (  -- the cast gives the column an affinity, without which SQLite cannot index it for the join
    SELECT CAST(named.value AS TEXT) AS id, seq,
           CASE WHEN field = '' OR coalesce(body ->> field, unsaid) THEN state ELSE otherwise END AS state,
           CASE WHEN events.kind IN ('step.completed', 'step.failed') THEN body ->> '$.step' END AS step
    FROM rule
    CROSS JOIN events ON events.kind = rule.kind  -- in this order: it is the index events_kind that finds them
    CROSS JOIN json_each(coalesce(nullif(body -> '$.examples', '[]'), json_array(body ->> '$.example'))) AS named
    WHERE rule.kind <> 'example.accepted'
), last AS (
    SELECT id, max(seq), state FROM moved WHERE state IS NOT NULL GROUP BY id
), tried AS (
    SELECT id, max(seq), step FROM moved WHERE step IS NOT NULL AND state IS NOT NULL GROUP BY id
), encoded AS (
    SELECT key AS id, max(seq), body ->> '$.tokens' AS tokens, body ->> '$.targets' AS targets
    FROM events WHERE kind = 'example.encoded' GROUP BY key
)
SELECT accepted.key AS id, accepted.seq, accepted.body ->> '$.source' AS source, accepted.body ->> '$.line' AS line,
       coalesce(accepted.body ->> '$.tier', 'bulk') AS tier, accepted.body ->> '$.record' AS record,
       coalesce(last.state, (SELECT state FROM rule WHERE kind = 'example.accepted')) AS state,
       encoded.tokens, encoded.targets, tried.step,
       strftime('%Y-%m-%dT%H:%M:%fZ', accepted.at_ns / 1e9, 'unixepoch') AS at
FROM events AS accepted
LEFT JOIN encoded ON encoded.id = accepted.key
LEFT JOIN last ON last.id = accepted.key
LEFT JOIN tried ON tried.id = accepted.key
WHERE accepted.kind = 'example.accepted';

-- decision: held, approved, declined, edited, expired. by: who decided; empty: the rule of a source, or time.
CREATE VIEW reviews AS
SELECT seq, CAST(key AS TEXT) AS example, substr(kind, length('example.') + 1) AS decision,
       coalesce(body ->> '$.by', '') AS by,
       coalesce(body ->> '$.reason', '') AS reason, body ->> '$.waits_for' AS waits_for,
       body ->> '$.into' AS replaced_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
FROM events WHERE kind IN ('example.held', 'example.approved', 'example.declined', 'example.edited')
UNION ALL
SELECT seq, CAST(gone.value AS TEXT), 'expired', '',
       CASE WHEN coalesce(body ->> '$.waiting', 0) THEN 'it waited too long to be learned' ELSE 'nobody decided' END,
         NULL, NULL,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch')
FROM events, json_each(events.body, '$.examples') AS gone WHERE events.kind = 'example.expired';

-- What logs show about answers.
CREATE VIEW signals AS
SELECT key AS id, body ->> '$.example' AS example, body ->> '$.kind' AS kind, body ->> '$.polarity' AS polarity,
       body ->> '$.strength' AS strength, body ->> '$.quote' AS quote, body ->> '$.session' AS session,
       coalesce(body ->> '$.records', '[]') AS records, body ->> '$.source' AS source, body ->> '$.line' AS line,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'signal.flagged';

-- Ratings of answers by people. holds: 1 for the last rating of an answer.
CREATE VIEW feedback AS
SELECT said.key AS response, said.body ->> '$.rating' AS rating, said.body ->> '$.by' AS given_by,
       nullif(said.body ->> '$.comment', '') AS comment, nullif(said.body ->> '$.answer', '') AS answer,
       nullif(said.body ->> '$.correction', '') AS correction, nullif(said.body ->> '$.example', '') AS example,
       nullif(said.body ->> '$.weights', '') AS weights, said.seq = newest.seq AS holds,
       strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch') AS at, said.seq
FROM events AS said
JOIN (SELECT key, max(seq) AS seq FROM events WHERE kind = 'feedback.given' GROUP BY key) AS newest USING (key)
WHERE said.kind = 'feedback.given';

-- The newest score of each example before it was learned. after_*: the newest one afterwards, unless the step that
-- learned the example, or the last step of the weights that were asked, was taken back. Mean log-probabilities (natural
-- logarithm, a token) of its last learned answer.
CREATE VIEW scores AS
WITH undone AS (
    SELECT step.value AS step FROM events, json_each(events.body, '$.undone') AS step
    WHERE events.kind = 'rollback.started'
)
SELECT said.example, said.seq, said.divergence, said.with_context, said.without_context, said.tokens,
       said.weights_version,
       said.alternate, later.step AS after_step, later.with_context AS after_with_context,
       later.without_context AS after_without_context, said.at
FROM (
    SELECT CAST(key AS TEXT) AS example, max(seq) AS seq, body ->> '$.divergence' AS divergence,
           body ->> '$.with_context' AS with_context, body ->> '$.without_context' AS without_context,
           body ->> '$.tokens' AS tokens,
           body ->> '$.weights_version' AS weights_version, coalesce(body ->> '$.alternate', '') AS alternate,
           strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
    FROM events WHERE kind = 'example.scored' AND coalesce(body ->> '$.after', 0) = 0 GROUP BY key
) AS said LEFT JOIN (
    SELECT CAST(key AS TEXT) AS example, max(seq), body ->> '$.after' AS step,
           body ->> '$.with_context' AS with_context,
           body ->> '$.without_context' AS without_context
    FROM events
    WHERE kind = 'example.scored' AND body ->> '$.after' > 0 AND body ->> '$.after' NOT IN (SELECT step FROM undone)
      AND body ->> '$.weights_version' NOT IN (SELECT step FROM undone)
    GROUP BY key
) AS later ON later.example = said.example;

-- The newest score of each example after it was learned, unless the step that learned it, or the last step of the
-- weights that were asked, was taken back. Losses: mean of -log p over its learned tokens, nats. weak: less than a
-- tenth below the loss before, and above 0.5.
CREATE VIEW gains AS
WITH undone AS (
    SELECT step.value AS step FROM events, json_each(events.body, '$.undone') AS step
    WHERE events.kind = 'rollback.started'
)
SELECT example, seq, step, before, after, tokens, weights_version,
       after > 0.5 AND before - after < 0.1 * before AS weak, at
FROM (
    SELECT CAST(score.value ->> '$.example' AS TEXT) AS example, max(said.seq) AS seq,
           score.value ->> '$.learned_in' AS step,
           score.value ->> '$.before' AS before, score.value ->> '$.after' AS after,
           score.value ->> '$.tokens' AS tokens,
           said.body ->> '$.step' AS weights_version,
           strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch') AS at
    FROM events AS said, json_each(said.body, '$.scores') AS score
    WHERE said.kind = 'example.rescored' AND score.value ->> '$.after' IS NOT NULL
      AND score.value ->> '$.learned_in' NOT IN (SELECT step FROM undone)
      AND said.body ->> '$.step' NOT IN (SELECT step FROM undone)
    GROUP BY 1
);

-- undone: 1 when the step was taken back.
CREATE VIEW steps AS
SELECT body ->> '$.step' AS step, body ->> '$.parent' AS parent, body ->> '$.example' AS example,
       body ->> '$.loss' AS loss, body ->> '$.lr' AS lr, body ->> '$.grad_norm' AS grad_norm,
       body ->> '$.tokens' AS tokens, body ->> '$.targets' AS targets, body ->> '$.fingerprint' AS fingerprint,
       body ->> '$.seconds' AS seconds, body ->> '$.applied' AS applied, back.step IS NOT NULL AS undone,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq,
       nullif(body -> '$.metrics', '{}') AS metrics
FROM events
LEFT JOIN (
    SELECT CAST(step.value AS TEXT) AS step FROM events, json_each(events.body, '$.undone') AS step
    WHERE events.kind = 'rollback.started' GROUP BY 1
) AS back ON back.step = events.key
WHERE kind = 'step.completed';

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
SELECT wish.body ->> '$.to' AS step, begun.body ->> '$.from_step' AS from_step,
       substr(coalesce(done.kind, begun.kind, wish.kind), 10) AS state,
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

-- Starts and exits of the two child processes.
CREATE VIEW children AS
SELECT seq, substr(kind, 1, instr(kind, '.') - 1) AS child, substr(kind, instr(kind, '.') + 1) AS event,
       body ->> '$.pid' AS pid, body ->> '$.attempt' AS attempt, body ->> '$.code' AS code,
       body ->> '$.reason' AS reason,
       body ->> '$.expected' AS expected, body ->> '$.refused' AS refused,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at
FROM events
WHERE kind IN ('engine.spawned', 'engine.ready', 'engine.exited',
               'trainer.spawned', 'trainer.bound', 'trainer.attached', 'trainer.exited');

-- Frozen answers that steps hold. moved, moved_max: divergence in nats a token when it was held last, and the largest
-- ever; NULL: no step held it that wrote something and was not taken back. Materialised, so that each join has an
-- index.
CREATE VIEW anchors AS
WITH undone AS MATERIALIZED (
    SELECT step.value AS step FROM events, json_each(events.body, '$.undone') AS step
    WHERE events.kind = 'rollback.started'
), done AS MATERIALIZED (
    SELECT CAST(key AS INTEGER) AS step, body -> '$.held' AS held FROM events WHERE kind = 'step.completed'
), holding AS MATERIALIZED (
    SELECT held.value AS anchor, done.step, done.held ->> ('$[' || held.key || ']') AS moved
    FROM events AS begun, json_each(begun.body, '$.held') AS held JOIN done ON done.step = CAST(begun.key AS INTEGER)
    WHERE begun.kind = 'step.started' AND done.step NOT IN (SELECT step FROM undone)
), told AS MATERIALIZED (
    SELECT anchor, count(*) AS steps, max(step) AS last_step, max(moved) AS moved_max FROM holding
    WHERE moved IS NOT NULL GROUP BY anchor
), encoded AS MATERIALIZED (
    SELECT CAST(key AS TEXT) AS anchor, body ->> '$.tokens' AS tokens FROM events WHERE kind = 'anchor.encoded'
), retired AS MATERIALIZED (
    SELECT one.value AS anchor, body ->> '$.reason' AS reason FROM events, json_each(body, '$.anchors') AS one
    WHERE kind = 'anchor.retired'
)
SELECT CAST(frozen.key AS TEXT) AS anchor, frozen.body ->> '$.sort' AS sort,
       nullif(frozen.body ->> '$.lesson', '') AS lesson,
       frozen.body ->> '$.wanted' AS wanted, frozen.body -> '$.record' AS record,
       frozen.body ->> '$.teacher' AS teacher,
       frozen.body ->> '$.weights_version' AS weights_version, encoded.tokens, coalesce(told.steps, 0) AS steps,
       told.last_step,
       told.moved_max, last.moved, retired.reason AS retired,
       strftime('%Y-%m-%dT%H:%M:%fZ', frozen.at_ns / 1e9, 'unixepoch') AS at, frozen.seq
FROM events AS frozen
LEFT JOIN encoded ON encoded.anchor = CAST(frozen.key AS TEXT)
LEFT JOIN told ON told.anchor = CAST(frozen.key AS TEXT)
LEFT JOIN holding AS last ON last.anchor = told.anchor AND last.step = told.last_step
LEFT JOIN retired ON retired.anchor = CAST(frozen.key AS TEXT)
WHERE frozen.kind = 'anchor.frozen';

-- kind and state: as apollod/core/facts/lessons/stages.py has them. The state of a fact is that of its last event; a known
-- lesson that is asked again (begun in the stage `again`) stays known meanwhile. In a journal that goes on from an
-- archive, steps and figures go on from its lesson.carried. example: the line that the lesson was made of. document:
-- name of the one that says it. A behaviour's definition that another one replaced under its name has a row of its own,
-- without figures.
CREATE VIEW lessons AS
WITH moved AS (  -- max() says which row the plain columns are of
    SELECT key, max(seq) AS seq, body ->> '$.reason' AS reason, body ->> '$.by' AS by,
           CASE kind WHEN 'lesson.carried' THEN body ->> '$.state' WHEN 'lesson.begun' THEN 'practising'
                     WHEN 'lesson.requested' THEN 'waiting' WHEN 'lesson.put-off' THEN 'waiting'
                     WHEN 'lesson.given-up' THEN 'given up' ELSE substr(kind, 8) END AS state
    FROM events
    WHERE kind IN ('lesson.known', 'lesson.fading', 'lesson.requested', 'lesson.replaced', 'lesson.given-up',
      'lesson.carried',
                   'lesson.put-off')
       OR (kind = 'lesson.begun' AND body ->> '$.stage' <> 'again')
    GROUP BY key
), measured AS (
    SELECT key, max(seq) AS seq, body FROM events WHERE kind IN ('lesson.known', 'lesson.given-up', 'lesson.carried')
    GROUP BY key
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
    SELECT name, max(events.seq) AS seq,
           CASE kind WHEN 'pattern.settled' THEN 'known' WHEN 'pattern.unsettled' THEN 'fading'
           WHEN 'pattern.retired' THEN 'given up' ELSE events.body ->> '$.state' END AS state
    FROM defined JOIN events ON events.key = name AND events.seq > defined.seq
    WHERE next IS NULL AND (kind IN ('pattern.settled', 'pattern.unsettled', 'pattern.retired')
                            OR (kind = 'pattern.carried' AND coalesce(events.body ->> '$.state', '') <> ''))
    GROUP BY name
), dreamt AS (
    SELECT body ->> '$.pattern' AS name, max(seq) AS seq FROM events WHERE kind IN ('dream.requested', 'dream.tested')
    GROUP BY 1
)
SELECT CAST(given.key AS TEXT) AS lesson,
       CASE WHEN nullif(given.body ->> '$.given.document', '') IS NOT NULL THEN 'document'
            WHEN nullif(given.body ->> '$.given.statement', '') IS NOT NULL THEN 'statement'
            ELSE 'correction' END AS kind,
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
       defined.body ->> '$.by', NULL, NULL, strftime('%Y-%m-%dT%H:%M:%fZ', defined.at_ns / 1e9, 'unixepoch'),
       defined.seq
FROM defined
LEFT JOIN patterns ON patterns.seq = defined.seq
LEFT JOIN moved_to ON moved_to.name = patterns.name
LEFT JOIN dreamt ON dreamt.name = patterns.name
WHERE patterns.seq IS NOT NULL OR defined.pattern <> defined.next;

-- Every answer that was asked of the model for a lesson.
CREATE VIEW lesson_answers AS
WITH worded AS (
    SELECT key, max(seq) AS seq, body FROM events WHERE kind = 'lesson.worded' GROUP BY key
)
SELECT CAST(asked.key AS TEXT) AS lesson, asked.body ->> '$.stage' AS stage, asked.body ->> '$.round' AS round,
       asked.body ->> '$.mode' AS mode, coalesce(said.value ->> '$.practice', 0) AS practice,
       worded.body ->> (CASE coalesce(said.value ->> '$.practice', 0)
                            WHEN 1 THEN '$.worded.practice[' ELSE '$.worded.held_out[' END
                        || (said.value ->> '$.wording') || '].prompt') AS prompt,
       said.value ->> '$.text' AS answer, said.value ->> '$.passed' AS passed, said.value ->> '$.seed' AS seed,
       asked.body ->> '$.weights_version' AS weights_version,
       strftime('%Y-%m-%dT%H:%M:%fZ', asked.at_ns / 1e9, 'unixepoch') AS at, asked.seq
FROM events AS asked JOIN json_each(asked.body, '$.answers') AS said LEFT JOIN worded ON worded.key = asked.key
WHERE asked.kind = 'lesson.asked';

-- One row for every name, as it was added last. Only a whole round of tests counts: one with as many tests in contrast
-- as there are held-out scenarios (10 where the addition does not say how many). Tests by sampled answers do not count.
-- In a journal that goes on from an archive, counts go on from its pattern.carried.
CREATE VIEW patterns AS
WITH added AS (
    SELECT CAST(key AS TEXT) AS name, max(seq) AS seq, at_ns, body FROM events WHERE kind = 'pattern.added' GROUP BY key
), carried AS (
    SELECT added.name, carried.seq, carried.body
    FROM events AS carried JOIN added ON added.name = carried.key AND carried.seq > added.seq
    WHERE carried.kind = 'pattern.carried'
), moved AS (
    SELECT key, max(seq) AS seq, kind, body ->> '$.reason' AS reason FROM events
    WHERE kind IN ('pattern.settled', 'pattern.unsettled', 'pattern.retired') GROUP BY key
), tests AS (
    -- the newest one of each dream and mode. A round that is made again after a rollback may have its name again
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
    FROM events AS done JOIN asked ON asked.key = done.key JOIN added ON added.name = asked.pattern
    LEFT JOIN carried USING (name)
    WHERE done.kind IN ('dream.requested', 'dream.imagined', 'dream.answered', 'dream.judged', 'dream.trained',
      'dream.tested')
      AND done.seq > coalesce(carried.seq, added.seq)
    GROUP BY 1
)
SELECT added.name, CASE WHEN moved.kind IS NULL OR moved.kind = 'pattern.unsettled' THEN 'active'
                        ELSE substr(moved.kind, 9) END AS state,
       moved.reason, coalesce(added.body ->> '$.pattern.held_out', 10) AS held_out,
       coalesce(baseline.bare, carried.body ->> '$.baseline.bare[0]') AS baseline_bare,
       coalesce(baseline.told, carried.body ->> '$.baseline.told[0]') AS baseline_told,
       coalesce(baseline.contrast, carried.body ->> '$.baseline.contrast[0]') AS baseline_contrast,
       last.round AS last_round,
       coalesce(last.bare, carried.body ->> '$.final.bare[0]') AS last_bare,
       coalesce(last.contrast, carried.body ->> '$.final.contrast[0]') AS last_contrast,
       coalesce(carried.body ->> '$.dreams', 0) + coalesce(spent.dreams, 0) AS dreams,
       coalesce(carried.body ->> '$.practices', 0) + coalesce(spent.practices, 0) AS practices,
       coalesce(carried.body ->> '$.tokens', 0) + coalesce(spent.tokens, 0) AS tokens,
       added.body ->> '$.by' AS "by", strftime('%Y-%m-%dT%H:%M:%fZ', added.at_ns / 1e9, 'unixepoch') AS added_at,
       added.seq
FROM added
LEFT JOIN carried USING (name)
LEFT JOIN moved ON moved.key = added.name AND moved.seq > added.seq
LEFT JOIN whole AS baseline ON baseline.name = added.name AND baseline.round = 'baseline'
LEFT JOIN last ON last.name = added.name
LEFT JOIN spent ON spent.name = added.name;

-- state: the last thing in its course (requested, imagined, answered, judged, trained, tested), or how it ended
-- (settled, abandoned). Tests of rounds over the held-out scenarios come later and are not part of its course.
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
    WHERE kind IN ('dream.imagined', 'dream.answered', 'dream.judged', 'dream.trained', 'dream.settled',
      'dream.abandoned')
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

-- round: NULL for a variation; baseline, shown, final N, recheck N for a held-out scenario. sample: 0 for the most
-- likely answer, n for the nth that was sampled in this mode and round.
CREATE VIEW dream_tests AS
SELECT CAST(key AS TEXT) AS dream, body ->> '$.pattern' AS pattern, nullif(body ->> '$.round', '') AS round,
       body ->> '$.mode' AS mode, nullif(body ->> '$.contrast', '') AS contrast, body ->> '$.passed' AS passed,
       body ->> '$.answer' AS answer, body ->> '$.by' AS "by", body ->> '$.reason' AS reason,
       body ->> '$.weights_version' AS weights_version, coalesce(body ->> '$.surrounding', 'none') AS surrounding,
       coalesce(body ->> '$.sample', 0) AS sample, coalesce(body ->> '$.tokens', 0) AS tokens,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'dream.tested';

-- agreed: for a planted case, 1 if the verdict is the right one. A dream's answer is judged by the judge that was
-- configured last before.
CREATE VIEW verdicts AS
SELECT nullif(body ->> '$.dream', '') AS dream, nullif(body ->> '$.example', '') AS example,
       nullif(body ->> '$.case', '') AS "case",
       body ->> '$.verdict' AS verdict, nullif(body ->> '$.expected', '') AS expected,
       body ->> '$.verdict' = nullif(body ->> '$.expected', '') AS agreed,
       body ->> '$.by' AS "by", body ->> '$.reason' AS reason, body ->> '$.quote' AS quote,
       body ->> '$.better' AS better,
       nullif(body ->> '$.into', '') AS "into", body ->> '$.votes' AS votes, body ->> '$.attempt' AS attempt,
       body ->> '$.model' AS model, body ->> '$.prompt_hash' AS prompt_hash,
       body ->> '$.weights_version' AS weights_version,
       body ->> '$.prompt_tokens' AS prompt_tokens, body ->> '$.completion_tokens' AS completion_tokens,
       body ->> '$.seconds' AS seconds, strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'verdict.given'
UNION ALL
SELECT CAST(said.key AS TEXT), NULL, NULL, said.body ->> '$.verdict', NULL, NULL, said.body ->> '$.by',
       said.body ->> '$.reason',
       said.body ->> '$.quote', said.body ->> '$.better', nullif(said.body ->> '$.example', ''),
       said.body ->> '$.votes', NULL,
       who.body ->> '$.model', who.body ->> '$.prompt_hash', NULL, NULL, NULL,
       said.body ->> '$.seconds', strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch'), said.seq
FROM events AS said
LEFT JOIN events AS who ON who.seq = (
    SELECT max(configured.seq) FROM events AS configured
    WHERE configured.kind = 'judge.configured' AND configured.seq < said.seq
)
WHERE said.kind = 'dream.judged' AND said.body ->> '$.by' = 'judge';

-- One row for each metric of each measurement. value: mean over the items that could be measured. drop: since the
-- baseline, positive is worse; NULL for a baseline and for a metric that may raise no alarm. alarmed: 1 when it raised
-- an alarm.
CREATE VIEW quality AS
SELECT CAST(said.body ->> '$.number' AS INTEGER) AS number, said.body ->> '$.why' AS why,
       said.body ->> '$.step' AS step,
       CAST(metric.key AS TEXT) AS metric, (SELECT avg(item.value) FROM json_each(metric.value) AS item) AS value,
       (SELECT count(*) FROM json_each(metric.value)) AS items,
       (SELECT after.value ->> '$.drop' FROM json_each(said.body, '$.after') AS after
        WHERE after.key = metric.key) AS "drop",
       (SELECT after.value ->> '$.margin' FROM json_each(said.body, '$.after') AS after
        WHERE after.key = metric.key) AS margin,
       EXISTS (
           SELECT 1 FROM events AS alarm, json_each(alarm.body, '$.metrics') AS worse
           WHERE alarm.seq = said.seq + 1 AND alarm.kind = 'quality.alarmed' AND worse.value = metric.key
       ) AS alarmed,
       coalesce(said.body ->> '$.share', 1.0) AS share,
       strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch') AS at, said.seq
FROM events AS said, json_each(said.body, '$.figures') AS metric WHERE said.kind = 'quality.measured';

-- Groups of answers to an environment's prompts, with or without an example that learns them. first, last: versions of
-- the weights that sampled them. step: the newest one that learned it. asked: the prompt's last turn.
CREATE VIEW groups AS
WITH learned AS MATERIALIZED (
    SELECT member.value AS example, max(CAST(done.key AS INTEGER)) AS step
    FROM events AS done, json_each(CASE WHEN coalesce(json_array_length(done.body, '$.examples'), 0)
        THEN done.body -> '$.examples' ELSE json_array(done.body ->> '$.example') END) AS member
    WHERE done.kind = 'step.completed' AND done.body ->> '$.applied' GROUP BY 1
)
SELECT said.body ->> '$.environment' AS environment, said.body ->> '$.number' AS number,
       nullif(said.body ->> '$.example', '') AS example, said.body -> '$.scores' AS scores,
       (SELECT avg(value) FROM json_each(said.body, '$.scores')) AS reward,
       (SELECT max(value) FROM json_each(said.body, '$.scores')) AS best,
       said.body ->> '$.tokens' AS tokens, said.body ->> '$.first' AS first, said.body ->> '$.last' AS last,
       coalesce(said.body ->> '$.reason', '') AS reason, learned.step,
       coalesce(taken.body ->> '$.record.group.prompt[#-1].content', nullif(said.body ->> '$.asked', '')) AS asked,
       coalesce(taken.body -> '$.record.group.answers',
                iif(coalesce(said.body ->> '$.answer', '') = '', NULL, json_array(said.body ->> '$.answer'))) AS answers,
       strftime('%Y-%m-%dT%H:%M:%fZ', said.at_ns / 1e9, 'unixepoch') AS at, said.seq
FROM events AS said
LEFT JOIN events AS taken ON taken.kind = 'example.accepted' AND taken.key = said.body ->> '$.example'
LEFT JOIN learned ON learned.example = said.body ->> '$.example'
WHERE said.kind = 'group.sampled';

-- Updates of the weights by outside trainers. state: open, committed, undone. step: that wrote it. lost: it could not be
-- repeated after a crash, and the weights went back to the version before.
CREATE VIEW updates AS
SELECT CAST(opened.key AS INTEGER) AS "update", opened.body ->> '$.dialect' AS dialect, opened.body ->> '$.by' AS given_by,
       CASE WHEN done.seq IS NOT NULL THEN 'committed' WHEN undone.seq IS NOT NULL THEN 'undone' ELSE 'open' END AS state,
       done.body ->> '$.step' AS step, opened.body ->> '$.weights' AS weights, nullif(done.body ->> '$.label', '') AS label,
       (SELECT sum(body ->> '$.tensors') FROM events WHERE kind = 'update.received' AND key = opened.key) AS tensors,
       (SELECT sum(body ->> '$.bytes') FROM events WHERE kind = 'update.received' AND key = opened.key) AS bytes,
       coalesce(done.body ->> '$.fingerprint', undone.body ->> '$.fingerprint') AS fingerprint,
       done.body ->> '$.durable' AS durable, undone.body ->> '$.reason' AS reason, lost.seq IS NOT NULL AS lost,
       (coalesce(done.at_ns, undone.at_ns) - opened.at_ns) / 1e9 AS seconds,
       strftime('%Y-%m-%dT%H:%M:%fZ', opened.at_ns / 1e9, 'unixepoch') AS at, opened.seq
FROM events AS opened
LEFT JOIN events AS done ON done.kind = 'update.committed' AND done.key = opened.key
LEFT JOIN events AS undone ON undone.kind = 'update.undone' AND undone.key = opened.key
LEFT JOIN events AS lost ON lost.kind = 'update.lost' AND lost.key = opened.key
WHERE opened.kind = 'update.opened';

-- Versions of the weights that engines elsewhere were sent, an attempt a row. step: the version. error: why it has it not.
-- carried, left_out: an adapter's share of the change since the engine's own weights, and changed tensors that it lacks.
CREATE VIEW weights_sent AS
SELECT body ->> '$.step' AS step, body ->> '$.receiver' AS receiver, body ->> '$.bridge' AS bridge,
       body ->> '$.fingerprint' AS fingerprint, body ->> '$.bytes' AS bytes, body ->> '$.seconds' AS seconds,
       body ->> '$.held_s' AS held_s, coalesce(body ->> '$.error', '') AS error,
       coalesce(body ->> '$.carried', 1.0) AS carried, coalesce(body ->> '$.left_out', 0) AS left_out,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'weights.sent';
