-- Where an example comes from when no person wrote it, and how well the model does: the kinds signal.*, dream.*, verdict.* and
-- quality.*, as far as a journal holds them. What they have in common is fixed here: a dream's events have the dream as their key
-- (so has a verdict on a response to it), `example` names the example that came of it or that is spoken of.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 3;  -- number of the newest migration applied

-- state: requested, imagined, answered, settled.
CREATE VIEW dreams AS
SELECT dream.key AS dream, dream.state, dream.example,
       strftime('%Y-%m-%dT%H:%M:%fZ', dream.at_ns / 1e9, 'unixepoch') AS at, dream.seq
FROM (
    SELECT key, substr(kind, 7) AS state, max(seq), min(seq) AS seq, min(at_ns) AS at_ns, max(body ->> '$.example') AS example
    FROM events WHERE kind IN ('dream.requested', 'dream.imagined', 'dream.answered', 'dream.settled') GROUP BY key
) AS dream;

CREATE VIEW verdicts AS
SELECT key AS dream, body ->> '$.example' AS example, body ->> '$.verdict' AS verdict, body ->> '$.by' AS "by",
       body ->> '$.reason' AS reason, strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'verdict.given';

-- alarmed: 1 when the measurement stopped training.
CREATE VIEW quality AS
SELECT body ->> '$.step' AS step, body ->> '$.measure' AS measure, body ->> '$.value' AS value, kind = 'quality.alarmed' AS alarmed,
       strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind IN ('quality.measured', 'quality.alarmed');
