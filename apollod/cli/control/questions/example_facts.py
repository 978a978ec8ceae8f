"""Reads one step and one example from the journal, for `why`.

Bodies are not decoded, so that what a newer apollod wrote is told as it stands.
"""

from typing import Any, NamedTuple

from apollod.adapters.journal import journal_reader
from apollod.cli.control.questions import gain_facts, rows
from apollod.core.example_state import RULES, ExampleState, rule_of, state_after
from apollod.core.quality.state import GUARD

_AT = "strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch')"


class _Fact(NamedTuple):
    """An event as far as an answer needs it."""

    seq: int
    at: str
    kind: str
    body: dict[str, Any]


def step_of(path: str, number: int) -> dict[str, Any]:
    """What is known of a step that exists: its intent, its result, and where the weights it made can be found."""
    facts = step_facts(path, number)
    body: dict[str, Any] = {}
    for fact in facts:
        body |= fact.body
    last = facts[-1]
    parent = body.get("parent")
    before = _fingerprint(path, parent) if parent is not None else None
    completed = last.kind == "step.completed"
    examples = body.get("examples") or [body["example"]]
    result = {"step.completed": "completed", "step.failed": "failed"}.get(last.kind, "running")
    names = (
        "lr",
        "loss",
        "loss_limit",
        "applied",
        "grad_norm",
        "update_norm",
        "tokens",
        "targets",
        "seconds",
        "window",
        "digest",
    )
    return {
        "step": number,
        "state": result,
        "example": body["example"],
        "examples": examples,
        "sources": _sources(path, examples),
        "reason": body.get("reason") or body.get("note") or "",
        **{name: body.get(name) for name in names},
        "before": {"version": parent, "fingerprint": before},
        "after": {"version": number, "fingerprint": body["fingerprint"]} if completed else None,
        "checkpoint": _first_checkpoint(path, number, last.seq) if completed else None,
        "taken_back": _taken_back(path, number),
        "at": last.at,
        "seq": last.seq,
    }


def _sources(path: str, examples: list[str]) -> list[dict[str, Any]]:
    """Where each of them comes from, in their order: file, lines, session and record ids."""
    among = ", ".join(f"'{example}'" for example in examples)
    accepted = _facts(path, f"seq IN (SELECT seq FROM known_examples WHERE id IN ({among}))")
    found = {fact.body["example"]: fact.body for fact in accepted if fact.kind == "example.accepted"}
    files = dict(rows.tuples(path, "SELECT source, path FROM sources")) if found else {}
    return [
        {
            "example": example,
            "path": files.get(found[example]["source"], found[example]["source"]),
            "line": found[example]["line"],
            "origin": found[example].get("origin", {}),
        }
        for example in examples
        if example in found
    ]


def step_facts(path: str, number: int) -> list[_Fact]:
    """Intent and result of a step; empty if there was none with this number."""
    return _facts(path, f"kind IN ('step.started', 'step.completed', 'step.failed') AND key = '{number}'")


def _fingerprint(path: str, version: int) -> str | None:
    """Of the weights of a version; version 0 is what the first trainer found."""
    facts = _facts(path, f"kind = 'step.completed' AND key = '{version}'" if version else "kind = 'trainer.bound'")
    return str(facts[0].body["fingerprint"]) if facts else None


def _taken_back(path: str, step: int) -> dict[str, Any] | None:
    """The rollback that undid a step."""
    facts = _facts(path, f"kind = 'rollback.started' AND {_lists('undone', str(step))}")
    return {"to": facts[0].body["to"], "at": facts[0].at, "seq": facts[0].seq} if facts else None


def _lists(field: str, value: str) -> str:
    """SQL: is it in this list of an event's body?"""
    return f"EXISTS (SELECT 1 FROM json_each(body, '$.{field}') AS e WHERE e.value = {value})"


def _first_checkpoint(path: str, step: int, seq: int) -> dict[str, Any] | None:
    """The first checkpoint with this step in it: as new or newer, with no step between that builds on older weights.

    Of several of one step, as rollbacks make them, one that is there still.
    """
    sql = f"""
        SELECT step, path, state, fingerprint, at FROM checkpoints AS c
        WHERE c.state <> 'failed' AND c.step >= {step} AND c.seq > {seq} AND NOT EXISTS (
            SELECT 1 FROM steps AS s WHERE s.seq > {seq} AND s.step <= c.step AND s.parent < {step}
        ) ORDER BY c.step, c.state = 'removed', c.seq LIMIT 1
    """
    for step_, path_, state, fingerprint, at in rows.tuples(path, sql):
        return {"step": step_, "path": path_, "state": state, "fingerprint": fingerprint, "at": at}
    return None


def example_of(path: str, id_: str) -> dict[str, Any]:
    """An accepted example: where it came from, what it became."""
    (accepted,) = _facts(path, f"seq = (SELECT seq FROM known_examples WHERE id = '{id_}')")
    later = f"seq > {accepted.seq} AND "
    encoded = _facts(path, f"{later}kind = 'example.encoded' AND key = '{id_}'")
    ((duplicates,),) = rows.tuples(
        path, f"SELECT count(*) FROM events WHERE kind = 'example.duplicate' AND key = '{id_}'"
    )
    became, evidence = _became(path, id_, later), _evidence(path, id_)
    lesson = lesson_of(path, id_)
    source = accepted.body["source"]
    quoted = journal_reader.literal(source)
    files = rows.tuples(path, f"SELECT path FROM sources WHERE source = {quoted}")
    return {
        "id": id_,
        "state": became.state,
        "reason": became.reason,
        "source": source,
        "path": files[-1][0] if files else source,
        "line": accepted.body["line"],
        "origin": accepted.body.get("origin", {}),
        "removed": accepted.body.get("removed", []),
        "tier": accepted.body.get("tier", "bulk"),
        "again_of": accepted.body.get("again_of", ""),
        **{name: encoded[-1].body[name] if encoded else None for name in ("tokens", "targets", "cut")},
        "duplicates": duplicates,
        "step": became.step,
        "steps": became.steps,
        "record": accepted.body["record"],
        "evidence": evidence,
        "decided": decided(evidence),
        "lesson": lesson,
        "replaced": replaced_by(path, id_),
        "gain": gain_facts.gain_of(path, id_),
        "at": accepted.at,
        "seq": accepted.seq,
    }


def lesson_of(path: str, id_: str) -> dict[str, Any] | None:
    """The lesson that was made of a line that was given directly, or that it is a practice of: its id (empty: none was
    made), its state, and why; None: it has nothing to do with one."""
    named = f"kind IN ('lesson.given', 'lesson.prepared') AND body ->> '$.example' = '{id_}'"
    for (lesson,) in rows.tuples(path, f"SELECT key FROM events WHERE {named} ORDER BY seq DESC LIMIT 1"):
        ((state, reason),) = rows.tuples(path, f"SELECT state, reason FROM lessons WHERE lesson = '{lesson}'")
        return {"lesson": lesson, "state": state, "reason": reason or ""}
    listed = _lists("examples", f"'{id_}'")
    left_out = _facts(path, f"kind = 'lesson.left-out' AND {listed}")
    return {"lesson": "", "state": "left out", "reason": left_out[-1].body["reason"]} if left_out else None


def told_lesson(lesson: dict[str, Any]) -> str:
    """The same for people."""
    said = f"{lesson['lesson']}, {lesson['state']}" if lesson["lesson"] else "none"
    return said + (f": {lesson['reason']}" if lesson["reason"] else "")


def replaced_by(path: str, id_: str) -> dict[str, Any] | None:
    """The lesson that has another answer than this example since, and the reason; None: there is none."""
    facts = _facts(path, f"kind = 'example.replaced' AND key = '{id_}' AND key IN ({gain_facts.REPLACED})")
    return {name: facts[-1].body[name] for name in ("lesson", "reason")} if facts else None


class _Became(NamedTuple):
    """State, why it is in it, the last step that settled it, and all that tried it."""

    state: str
    reason: str
    step: int | None
    steps: list[int]


def _became(path: str, id_: str, later: str) -> _Became:
    """What the events after its acceptance made of an example."""
    kinds = ", ".join(sorted({f"'{rule.kind}'" for rule in RULES if None not in rule.out_of}))
    listed = _lists("examples", f"'{id_}'")
    # those of one example have it as their key, and need no look into the body
    among = f"body ->> '$.example' = '{id_}' OR {listed}"
    of_several = "kind NOT GLOB 'example.*' OR kind IN ('example.withdrawn', 'example.expired')"
    named = f"key = '{id_}' OR (({of_several}) AND ({among}))"
    state: ExampleState | None = "pending"
    reason, step, steps = "", None, []
    for fact in _facts(path, f"{later}kind IN ({kinds}) AND ({named})"):
        if "step" in fact.body:
            steps.append(fact.body["step"])
        rule = rule_of(fact.kind, fact.body)
        if rule is None or (after := state_after(state, rule)) == state:
            continue
        state, reason = after, _reason(fact)
        step = fact.body.get("step", step)
    return _Became(str(state), reason, step, steps)


def _reason(fact: _Fact) -> str:
    """The reason why an example is in the state into which this event took it."""
    if fact.kind == "rollback.started":
        return f"taken back by the rollback to step {fact.body['to']} (event {fact.seq})"
    if fact.kind == "example.withdrawn" and fact.body.get("reason"):
        return f"forgotten for {fact.body['by']}: {fact.body['reason']} (event {fact.seq})"
    if fact.kind == "example.withdrawn":
        return f"taken out of the queue by {fact.body['by']} (event {fact.seq})"
    if fact.kind == "example.approved":
        return f"approved by {fact.body['by']}" + (f": {fact.body['reason']}" if fact.body["reason"] else "")
    if fact.kind == "example.declined":
        return f"declined by {fact.body['by']}" + (f": {fact.body['reason']}" if fact.body["reason"] else "")
    if fact.kind == "example.edited":
        return f"{fact.body['by']} wrote {fact.body['into']} instead"
    if fact.kind == "example.expired":
        return f"nobody decided for {fact.body['days']:g} days"
    if fact.kind == "example.requeued":
        return "asked for again"
    return fact.body.get("reason") or fact.body.get("note") or ""


def _evidence(path: str, example: str) -> list[dict[str, Any]]:
    """The reason why it was worth learning, and who said so: signals that name it, every event of the dreams it came
    of, verdicts on it or that it was made of, and what was decided about it."""
    kinds = "kind GLOB 'signal.*' OR kind GLOB 'dream.*' OR kind IN ('verdict.given', 'verdict.failed')"
    dreams = f"SELECT key FROM events WHERE kind GLOB 'dream.*' AND body ->> '$.example' = '{example}'"
    named = f"body ->> '$.example' = '{example}' OR body ->> '$.into' = '{example}' OR key IN ({dreams})"
    decisions = "'example.held', 'example.approved', 'example.declined', 'example.edited', 'example.requeued'"
    taken = "'example.withdrawn', 'forget.requested', 'forget.started', 'forget.refused', 'forget.completed'"
    listed, also = _lists("examples", f"'{example}'"), _lists("also", f"'{example}'")
    ways = (
        f"({kinds}) AND ({named})",
        f"kind IN ({decisions}) AND key = '{example}'",
        f"kind IN ({taken}) AND {listed}",
        f"kind = 'signal.flagged' AND {also}",
    )
    facts = _facts(path, " OR ".join(f"({way})" for way in ways))
    return [{"kind": fact.kind, "body": fact.body, "at": fact.at, "seq": fact.seq} for fact in facts]


_DECISIONS = {
    "example.held": "held", "example.approved": "approved", "example.declined": "declined",
    "example.edited": "edited", "example.requeued": "asked for again", "example.withdrawn": "withdrawn",
    "forget.requested": "to be forgotten", "forget.refused": "not forgotten",
}  # fmt: skip
_DECIDERS = {"judge": "judge", "evidence": "evidence", GUARD: "guard", "": "rule", "archive": "rule"}


def decided(evidence: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The decision that counts, which is the last one: what, by whom (`who`: person, judge, evidence, guard, rule), and
    why; None: nobody decided anything."""
    last = next((fact for fact in reversed(evidence) if fact["kind"] in _DECISIONS), None)
    if last is None:
        return None
    by = "" if last["kind"] == "forget.refused" else last["body"].get("by", "")
    reason = last["body"].get("reason") or (f"as {last['body']['into']}" if last["body"].get("into") else "")
    return {
        "what": _DECISIONS[last["kind"]], "by": by, "who": _DECIDERS.get(by, "person"), "reason": reason,
        "at": last["at"], "seq": last["seq"],
    }  # fmt: skip


def signals_of(path: str, example: str) -> list[dict[str, Any]]:
    """What logs showed about its answers, with the words and records that show it."""
    also = _lists("also", f"'{example}'")
    facts = _facts(path, f"kind = 'signal.flagged' AND (body ->> '$.example' = '{example}' OR {also})")
    return [{**fact.body, "at": fact.at, "seq": fact.seq} for fact in facts]


def told(signal: dict[str, Any]) -> str:
    """A signal for people: kind, what it says and how much, the words, the records."""
    said = [str(signal[name]) for name in ("kind", "polarity") if signal.get(name)]
    strength = f" {signal['strength']:g}" if "strength" in signal else ""
    quote = f': "{signal["quote"]}"' if signal.get("quote") else ""
    where = [f"session {signal['session']}"] if signal.get("session") else []
    where += [f"records {' '.join(signal['records'])}"] if signal.get("records") else []
    where += [f"line {signal['line']}"] if "line" in signal else []
    behind = f"   ({', '.join(where)})" if where else ""
    return f"{', '.join(dict.fromkeys(said))}{strength}{quote}{behind}"


def _facts(path: str, where: str) -> list[_Fact]:
    found = rows.tuples(path, f"SELECT seq, {_AT}, kind, body FROM events WHERE {where} ORDER BY seq")
    return [_Fact(seq, at, kind, journal_reader.decode_body(path, seq, body)) for seq, at, kind, body in found]
