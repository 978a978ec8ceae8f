-- The view `known_examples` has the examples that a journal took over from its archive.
--
-- This file is immutable once released: a change is the next number.

PRAGMA user_version = 7;  -- number of the newest migration applied

DROP VIEW known_examples;

CREATE VIEW known_examples AS
SELECT id, seq FROM example_index
UNION ALL
SELECT key, seq FROM events
WHERE kind = 'example.accepted' AND seq > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'indexed_seq')
  AND NOT EXISTS (SELECT 1 FROM example_index WHERE id = events.key)
UNION ALL
SELECT CAST(carried.value AS TEXT), events.seq FROM events, json_each(events.body, '$.examples') AS carried
WHERE events.kind = 'example.carried' AND events.seq > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'indexed_seq')
  AND NOT EXISTS (SELECT 1 FROM example_index WHERE id = carried.value);
