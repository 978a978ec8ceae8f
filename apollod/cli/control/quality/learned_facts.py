"""Reads from the journal what was learned, how much of it the model says without being told, and what it cost."""

import json
from collections.abc import Collection
from typing import Any

from apollod.adapters.journal.journal_reader import literal
from apollod.cli.control.questions import gain_facts, rows
from apollod.core.rates import wilson

Object = dict[str, Any]

_MEMBERS = """
    SELECT CAST(member.value AS TEXT) AS example, steps.step, steps.seq, 1.0 * steps.tokens / of.count AS tokens,
           1.0 * steps.seconds / of.count AS seconds
    FROM steps JOIN events ON events.seq = steps.seq
    JOIN (
        SELECT seq, max(1, coalesce(json_array_length(body, '$.examples'), 0)) AS count FROM events
        WHERE kind = 'step.completed'
    ) AS of ON of.seq = steps.seq,
    json_each(CASE WHEN coalesce(json_array_length(events.body, '$.examples'), 0) THEN events.body -> '$.examples'
              ELSE json_array(steps.example) END) AS member
    WHERE steps.applied AND NOT steps.undone
"""
"""Each example of each step that counts; tokens and seconds of a step in equal parts."""

_TIERS = f"""
    WITH member AS ({_MEMBERS})
    SELECT coalesce(accepted.tier, 'archived') AS tier, count(DISTINCT member.example) AS examples,
           count(DISTINCT member.step) AS steps, CAST(round(sum(member.tokens)) AS INTEGER) AS tokens,
           sum(member.seconds) AS seconds
    FROM member LEFT JOIN (
        SELECT key AS id, coalesce(body ->> '$.tier', 'bulk') AS tier FROM events WHERE kind = 'example.accepted'
    ) AS accepted ON accepted.id = member.example
    GROUP BY 1 ORDER BY 2 DESC, 1
"""
"""archived: the journal goes on from an archive, which knows the tier."""

_SCORES = f"""
    WITH member AS ({_MEMBERS}), learned AS (
        SELECT example, min(seq) AS first_seq, min(step) AS first FROM member GROUP BY example
    ), tiers AS (
        SELECT key AS id, coalesce(body ->> '$.tier', 'bulk') AS tier FROM events WHERE kind = 'example.accepted'
    ), scored AS (
        SELECT said.seq, learned.example, body ->> '$.divergence' AS divergence, body ->> '$.with_context' AS told,
               body ->> '$.without_context' AS untold, coalesce(body ->> '$.weights_version', -1) AS version,
               said.seq > learned.first_seq AS later, learned.first, coalesce(body ->> '$.after', 0) AS after
        FROM events AS said JOIN learned ON learned.example = said.key WHERE said.kind = 'example.scored'
    )
    SELECT example, divergence, told, untold, after > 0 AS after, coalesce(tier, 'archived') AS tier
    FROM scored LEFT JOIN tiers ON tiers.id = example
    WHERE CASE WHEN after = 0 THEN version < first AND (version >= 0 OR NOT later)
          ELSE EXISTS (SELECT 1 FROM member WHERE member.example = scored.example AND member.step = scored.after)
               AND version NOT IN (SELECT step FROM steps WHERE undone) END
    ORDER BY scored.seq
"""
"""Scores of examples that stayed learned: first ones, by weights that have learned nothing of them (after: 0), and
second ones, of which neither the step that learned the example nor the last one of the weights was taken back."""

_KNOWN = """
    SELECT coalesce(sum(max(1, coalesce(json_array_length(body, '$.examples'), 0))), 0) FROM events
    WHERE kind = 'step.completed' AND body ->> '$.known'
"""
"""Examples that wrote nothing because they were known."""

_SPENT = (
    ("steps that count", "steps", "NOT undone"),
    ("steps taken back", "steps", "undone"),
    ("dreams", "events", "kind IN ('dream.imagined', 'dream.answered', 'dream.tested')"),
    ("judging", "events", "kind IN ('dream.judged', 'verdict.given')"),
    ("scores", "events", "kind IN ('example.scored', 'example.rescored')"),
    ("probes", "events", "kind = 'quality.measured'"),
    ("replays of searches", "events", "kind = 'quality.replayed'"),
    ("rollbacks", "events", "kind = 'rollback.completed'"),
)
_TOKENS = (
    "sum(coalesce(body ->> '$.tokens', 0) + coalesce(body ->> '$.prompt_tokens', 0)"
    " + coalesce(body ->> '$.completion_tokens', 0))"
)


def facts(path: str) -> Object:
    """`learned`, `gains`, `divergence` and `spent`, as `quality report --json` has them."""
    return {
        "learned": {
            "tiers": rows.objects(path, _TIERS), "known": rows.tuples(path, _KNOWN)[0][0], "patterns": _patterns(path),
        },
        "gains": gain_facts.totals(path),
        "divergence": _divergence(path),
        "spent": [_spent(path, *one) for one in _SPENT],
    }  # fmt: skip


def _patterns(path: str) -> list[Object]:
    """Of each, how many held-out scenarios were passed without being told, before the first practice and last."""
    if not rows.has(path, "patterns"):
        return []
    names = "name, state, held_out, practices, dreams, tokens, baseline_bare, last_bare, last_round"
    found = rows.objects(path, f"SELECT {names} FROM patterns ORDER BY seq")
    return [
        {
            "pattern": one["name"], "state": one["state"], "practices": one["practices"], "dreams": one["dreams"],
            "tokens": one["tokens"], "before": _rate(one["baseline_bare"], one["held_out"]),
            "after": _rate(one["last_bare"], one["held_out"]),
        }
        for one in found
    ]  # fmt: skip


def _rate(passed: int | None, of: int) -> Object | None:
    if passed is None:
        return None
    low, high = wilson(passed, of)
    return {"passed": passed, "of": of, "low": low, "high": high}


def _divergence(path: str) -> Object:
    """Means over examples, of the last score before learning and the last one after: log-probabilities a token. `both`:
    examples that have both; `likelier`: those whose untold answer got likelier; `untold_before`, `untold_after`: their
    means;
    `closed`: of what being told was worth then, the share that the untold answers have gained. The last two are null
    without any, and where being told was worth nothing. `tiers`: the same of the examples that have both, by tier."""
    before, after = dict[str, Object](), dict[str, Object]()
    for one in rows.objects(path, _SCORES):
        (after if one["after"] else before)[one["example"]] = one
    pairs = [(before[one], after[one]) for one in before if one in after]
    names = sorted({first["tier"] for first, _ in pairs})
    tiers = [{"tier": name, **_gained([pair for pair in pairs if pair[0]["tier"] == name])} for name in names]
    gained = _gained(pairs)
    shown = {name: gained[name] for name in ("both", "likelier", "untold_before", "untold_after", "closed")}
    return {"before": _means(before.values()), "after": _means(after.values()), **shown, "tiers": tiers}


def _gained(pairs: list[tuple[Object, Object]]) -> Object:
    """Of examples with both scores, see `_divergence`; `told_before`, `untold_before` and `untold_after` are means."""
    then, now = _means([first for first, _ in pairs]), _means([second for _, second in pairs])
    closed = (now["untold"] - then["untold"]) / then["divergence"] if then and now and then["divergence"] > 0 else None
    return {
        "both": len(pairs), "likelier": sum(second["untold"] > first["untold"] for first, second in pairs),
        "told_before": then["told"] if then else None, "untold_before": then["untold"] if then else None,
        "untold_after": now["untold"] if now else None, "closed": closed,
    }  # fmt: skip


def _means(scores: Collection[Object]) -> Object | None:
    if not scores:
        return None
    means = {name: sum(one[name] for one in scores) / len(scores) for name in ("divergence", "told", "untold")}
    return {"examples": len(scores), **means}


def _spent(path: str, what: str, where: str, which: str) -> Object:
    """`tokens`: null where none are recorded, as of a replay."""
    tokens = "sum(tokens)" if where == "steps" else _TOKENS
    seconds = "sum(seconds)" if where == "steps" else "sum(body ->> '$.seconds')"
    ((count, took, read),) = rows.tuples(path, f"SELECT count(*), {seconds}, {tokens} FROM {where} WHERE {which}")
    counted = what not in ("replays of searches", "rollbacks")
    return {"what": what, "count": count, "seconds": took or 0.0, "tokens": int(read or 0) if counted else None}


def searches(path: str) -> dict[int, Object]:
    """By incident, what the search for the examples that did the harm came to; each example with its place."""
    told = rows.tuples(path, "SELECT body FROM events WHERE kind = 'quality.named' ORDER BY seq")
    found = {one["incident"]: one for one in (json.loads(body) for (body,) in told)}
    ids = {id_ for one in found.values() for id_ in (*one.get("culprits", ()), *one.get("suspects", ()))}
    places = _places(path, sorted(ids))
    for one in found.values():
        for name in ("culprits", "suspects"):
            one[name] = [{"example": id_, "place": places.get(id_)} for id_ in one.get(name, ())]
    return found


def _places(path: str, ids: list[str]) -> dict[str, str]:
    """Path and line of each example that the journal has."""
    listed = ", ".join(literal(one) for one in ids)
    found = rows.tuples(
        path,
        "SELECT e.key, coalesce(s.path, e.body ->> '$.source'), e.body ->> '$.line' FROM events AS e "
        "LEFT JOIN (SELECT source, path FROM sources GROUP BY source) AS s ON s.source = e.body ->> '$.source' "
        f"WHERE e.kind = 'example.accepted' AND e.key IN ({listed})",
    )
    return {id_: f"{source}:{line}" if line else str(source) for id_, source, line in found}


def written(path: str) -> str:
    """When the last event was recorded, UTC, ISO-8601; empty of an empty journal."""
    at = "strftime('%Y-%m-%d %H:%M:%S', at_ns / 1e9, 'unixepoch')"
    found = rows.tuples(path, f"SELECT {at} FROM events ORDER BY seq DESC LIMIT 1")
    return str(found[0][0]) if found else ""
