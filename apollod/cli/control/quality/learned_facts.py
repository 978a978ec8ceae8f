"""Learned examples, by the journal: gain in likelihood, also of untold answers, and cost."""

from collections.abc import Collection, Mapping
from statistics import mean
from typing import Any

from apollod.cli import render
from apollod.cli.control import rows
from apollod.core.rates import wilson
from apollod.core.rules import preferences

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
"""Scores of examples that stayed learned: first ones, by weights that had learned nothing of them (after: 0), and
second ones, if neither the step that learned the example nor the last one of the weights was taken back."""

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
    """`learned`, `gains`, `rewards`, `comparisons`, `divergence` and `spent`, as `quality report --json` has them."""
    return {
        "learned": {
            "tiers": rows.objects(path, _TIERS), "known": rows.scalar(path, _KNOWN), "patterns": _patterns(path),
        },
        "gains": totals(path), "rewards": _rewards(path), "comparisons": _comparisons(path),
        "divergence": _divergence(path),
        "spent": [_spent(path, *one) for one in _SPENT],
    }  # fmt: skip


REWARDED_AT_ONCE = 10
"""groups of a point of the curve of rewards"""


def _rewards(path: str) -> list[Object]:
    """Curves of environments, in the order of their first groups: the mean reward of each ten groups that were learned
    one after the other, at the step of the last one. `last`: the figures of the last such groups, `kl` in nats a
    token."""
    if not rows.has(path, "groups"):
        return []
    named = dict[str, list[Object]]()
    figures = ", ".join(f"steps.metrics ->> '$.{name}' AS {name}" for name in ("ratio", "clipped", "kl", "entropy"))
    sql = f"SELECT environment, reward, groups.step, {figures} FROM groups JOIN steps USING (step) ORDER BY groups.seq"
    for one in rows.objects(path, sql):
        named.setdefault(one["environment"], []).append(one)
    return [_curve(environment, groups) for environment, groups in named.items()]


def _curve(environment: str, groups: list[Object]) -> Object:
    parts = [groups[at : at + REWARDED_AT_ONCE] for at in range(0, len(groups), REWARDED_AT_ONCE)]
    known = {name: [one[name] for one in parts[-1] if one[name] is not None] for name in parts[-1][-1]}
    return {
        "environment": environment, "groups": len(groups),
        "points": [{"step": part[-1]["step"], "reward": mean(one["reward"] for one in part)} for part in parts],
        "last": {
            name: mean(known[name]) if known[name] else None for name in ("ratio", "clipped", "kl", "entropy")
        },
    }  # fmt: skip


def _comparisons(path: str) -> list[Object]:
    """Learned pairs of answers (dpo) and ratings (kto), where there are some. `right`, `margin`: see
    `core.rules.preferences.Preferences`."""
    found = preferences.status(rows.folded_state(path))
    each = (("pairs", found.pairs, found.margin), ("ratings", found.ratings, None))
    return [
        {"what": what, "learned": learned, "margin": margin, "right": found.right}
        for what, learned, margin in each
        if learned
    ]


def _patterns(path: str) -> list[Object]:
    """Held-out scenarios passed untold, by pattern: before the first practice, and last."""
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
    """Means over examples of the last score before learning and the last one after: log-probabilities a token.

    `both`: number of examples with both; `likelier`: with a likelier untold answer; `untold_before`, `untold_after`:
    means of those with both, null without any; `closed`: gain of the untold answers as a share of the former gain from
    being told, null without any, or if being told gained nothing. `tiers`: the same by tier.
    """
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
    """Figures of examples with both scores, see `_divergence`; `told_before`, `untold_*` are means."""
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
    """Cost of one kind of work. `tokens`: null if none are recorded, as of a replay."""
    tokens = "sum(tokens)" if where == "steps" else _TOKENS
    seconds = "sum(seconds)" if where == "steps" else "sum(body ->> '$.seconds')"
    ((count, took, read),) = rows.tuples(path, f"SELECT count(*), {seconds}, {tokens} FROM {where} WHERE {which}")
    counted = what not in ("replays of searches", "rollbacks")
    return {"what": what, "count": count, "seconds": took or 0.0, "tokens": int(read or 0) if counted else None}


def written(path: str) -> str:
    """Time of the last event, UTC, ISO-8601; empty for an empty journal."""
    at = "strftime('%Y-%m-%d %H:%M:%S', at_ns / 1e9, 'unixepoch')"
    return rows.scalar(path, f"SELECT {at} FROM events ORDER BY seq DESC LIMIT 1") or ""


REPLACED = """SELECT said.key FROM events AS said WHERE said.kind = 'example.replaced' AND NOT EXISTS (
    SELECT 1 FROM events AS over WHERE over.kind = 'lesson.given-up' AND over.key = said.body ->> '$.lesson'
        AND over.seq > said.seq AND over.body ->> '$.by' <> 'apollod')"""
"""SQL: examples that are wrong by a later lesson that stands, or that nobody took back. Their gains mean nothing."""


def gain_of(path: str, example: str) -> dict[str, Any] | None:
    """Row of the view `gains`; None: not scored again, or an older apollod wrote this journal last."""
    if not rows.has(path, "gains"):
        return None
    wanted = f"weak AND example NOT IN ({REPLACED}) AS weak"
    found = rows.objects(path, f"SELECT *, {wanted} FROM gains WHERE example = '{example}'")
    return {**found[0], "weak": bool(found[0]["weak"])} if found else None


def told_gain(gain: Mapping[str, Any], targets: int | None) -> str:
    """A gain for people. `targets`: tokens of the example that are learned."""
    later = gain["weights_version"] - gain["step"]
    when = f"{later} step{'s' if later > 1 else ''} later" if later else "right after its step"
    of = f"{gain['tokens']} of {targets or gain['tokens']} tokens"
    weak = "; it hardly moved: given again, it is taught again" if gain["weak"] else ""
    return f"loss {gain['before']:.2f} -> {gain['after']:.2f} nats a token ({of}), scored {when}{weak}"


def totals(path: str) -> dict[str, Any] | None:
    """Figures of all examples that were scored again: number, mean losses before and after, number of weakly learned
    ones; None: there is none."""
    if not rows.has(path, "gains"):
        return None
    means = "count(*) AS scored, avg(before) AS before, avg(after) AS after, sum(weak) AS weak"
    sql = f"SELECT {means} FROM gains WHERE example NOT IN ({REPLACED})"
    (found,) = rows.objects(path, sql)
    return found if found["scored"] else None


def told_totals(found: Mapping[str, Any]) -> str:
    """Totals for people."""
    gain = f"loss {found['before']:.2f} -> {found['after']:.2f} nats a token on average"
    return f"of {found['scored']:,} scored again, {gain}; {found['weak']:,} hardly moved"


def lines(report: Object) -> list[str]:
    """Lines of the report, with an empty one before them; none if nothing was learned or asked."""
    learned = [
        f"{t['examples']:,} {t['tier']} in {t['steps']:,} steps, {t['tokens']:,} tokens, "
        f"{render.duration(t['seconds'])}"
        for t in report["learned"]["tiers"]
    ]
    if known := report["learned"]["known"]:
        learned.append(f"{known:,} {'were' if known > 1 else 'was'} known already")
    spent = [f"{one['what']} {render.duration(one['seconds'])}" for one in report["spent"] if one["count"]]
    gains, divergence = report["gains"], report["divergence"]
    tiers = divergence["tiers"] if divergence["both"] else []
    found = render.fields(
        ("learned", "; ".join(learned)),
        ("", gains and told_totals(gains)),
        *(("rewards", rewarded(one)) for one in report["rewards"]),
        *((one["what"], compared(one)) for one in report["comparisons"]),
        ("untold", divergence["both"] > 0 and untold(divergence)),
        *(("", f"{one['tier']}: {untold(one)}") for one in tiers if len(tiers) > 1),
        ("spent", ", ".join(spent)),
    )
    return ["", *found] if found else []


def rewarded(found: Mapping[str, Any]) -> str:
    """A curve of rewards for people."""
    first, last = found["points"][0]["reward"], found["points"][-1]["reward"]
    figures = ", ".join(f"{name} {value:.3g}" for name, value in found["last"].items() if value is not None)
    told = f"{found['environment']}: {found['groups']:,} groups, mean reward {first:.3g} -> {last:.3g}"
    return told + (f" ({figures})" if figures else "")


def compared(found: Mapping[str, Any]) -> str:
    """Learned comparisons for people."""
    margin = "" if found["margin"] is None else f", margin {found['margin']:.2f} before they were learned"
    right = "" if found["right"] is None else f", {found['right']:.0%} of the last comparisons were right before"
    return f"{found['learned']:,} learned{margin}{right}"


def untold(found: Mapping[str, Any]) -> str:
    """Gain of untold answers, from a `divergence`, or a tier of it, that has an example with both scores."""
    told = f"{found['likelier']} of {found['both']} learned answers got likelier"
    told += f", {found['untold_before']:.3f} -> {found['untold_after']:.3f} nats a token on average"
    return told + (f", {found['closed']:.0%} of the way to the told ones" if found["closed"] is not None else "")
