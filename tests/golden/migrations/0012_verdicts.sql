-- What judges said: the view `verdicts` tells of examples and planted cases, too, what was quoted and written, who judged with which
-- prompt, and what it cost. A verdict on the answer to a dream has that dream.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 12;  -- number of the newest migration applied

DROP VIEW verdicts;

-- agreed: of a planted case, whether the verdict is the right one.
CREATE VIEW verdicts AS
SELECT nullif(body ->> '$.dream', '') AS dream, nullif(body ->> '$.example', '') AS example, nullif(body ->> '$.case', '') AS "case",
       body ->> '$.verdict' AS verdict, nullif(body ->> '$.expected', '') AS expected,
       body ->> '$.verdict' = nullif(body ->> '$.expected', '') AS agreed,
       body ->> '$.by' AS "by", body ->> '$.reason' AS reason, body ->> '$.quote' AS quote, body ->> '$.better' AS better,
       nullif(body ->> '$.into', '') AS "into", body ->> '$.votes' AS votes, body ->> '$.attempt' AS attempt,
       body ->> '$.model' AS model, body ->> '$.prompt_hash' AS prompt_hash, body ->> '$.weights_version' AS weights_version,
       body ->> '$.prompt_tokens' AS prompt_tokens, body ->> '$.completion_tokens' AS completion_tokens,
       body ->> '$.seconds' AS seconds, strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch') AS at, seq
FROM events WHERE kind = 'verdict.given';
