"""Reads one step and one example from the journal, and finds an example by the beginning of its id.

Bodies of events are not decoded, so that those of a newer apollod are shown as they stand.
"""

import re
from typing import Any, NamedTuple

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.journal_reader import continued
from apollod.cli.control import rows
from apollod.cli.control.quality import learned_facts
from apollod.core.events import JournalContinued
from apollod.core.example_state import RULES, ExampleState, rule_of, state_after
from apollod.core.facts.quality.state import GUARD
from apollod.errors import ApolloError, ConfigError

PREFIX_MIN, ID_DIGITS = 6, 32
NAMED_MAX = 5  # examples named when a prefix is not unique
_WHERE = "`apollod ctl example list` has them"
_AT = "strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch')"
_OF_A_STEP = "kind IN ('step.started', 'step.completed', 'step.failed')"
_STEP = (
    "lr", "loss", "loss_limit", "applied", "grad_norm", "update_norm", "tokens", "targets", "seconds", "window",
    "digest",
)  # fmt: skip


# --- an example as a person names it ------------------------------------------------------------------------------


def state_of(path: str, id_: str) -> str:
    """State of an example that was accepted."""
    return str(rows.scalar(path, f"SELECT state FROM examples WHERE id = '{id_}'"))


def was_known(path: str, id_: str) -> bool:
    """True if it was not learned because the model knows it: the first look of its lesson found that, or its last
    step, which wrote nothing."""
    one_of = f"EXISTS (SELECT 1 FROM json_each(body, '$.examples') WHERE value = '{id_}')"
    among = f"body ->> '$.example' = '{id_}' OR {one_of}"
    kinds = "kind IN ('step.completed', 'example.looked')"
    sql = f"SELECT body ->> '$.known' FROM events WHERE {kinds} AND ({among}) ORDER BY seq DESC LIMIT 1"
    return bool(rows.scalar(path, sql))


def is_id(text: str) -> bool:
    """True if the text may be the id of an example, or the beginning of one."""
    return re.fullmatch(rf"[0-9a-f]{{{PREFIX_MIN},{ID_DIGITS}}}", text) is not None


def known(path: str, prefix: str) -> str:
    """The example whose id begins so; empty: none does. Raises ApolloError if several do, or only the archive has
    it."""
    sql = f"SELECT id FROM known_examples WHERE id >= '{prefix}' AND id < '{prefix}g' ORDER BY id LIMIT {NAMED_MAX + 1}"
    ids = [id_ for (id_,) in rows.tuples(path, sql)]
    if len(ids) > 1:
        more = " ..." if len(ids) > NAMED_MAX else ""
        raise ApolloError(
            f"several examples begin with {prefix}: {' '.join(ids[:NAMED_MAX])}{more}", "give more digits"
        )
    if ids and (begun := _carried(path, str(ids[0]))):
        raise ApolloError(
            f"what became of {ids[0]} is not in this journal, which begins at step {begun.step}",
            f"ask its archive: --file {begun.archive}",
        )
    return str(ids[0]) if ids else ""


def _carried(path: str, id_: str) -> JournalContinued | None:
    """The archive that has the example; None: the journal itself has it."""
    sql = f"SELECT 1 FROM known_examples JOIN events USING (seq) WHERE id = '{id_}' AND kind = 'example.carried'"
    return continued(path) if rows.tuples(path, sql) else None


def unknown(path: str, prefix: str) -> ApolloError:
    """The error for a prefix that no id has."""
    count = rows.scalar(path, "SELECT count(*) FROM known_examples")
    among = f"the journal knows {count} examples" if count else "no example was accepted yet"
    return ApolloError(f"no example begins with {prefix}: {among}", _WHERE)


def meant(path: str, what: str) -> str:
    """The example whose id begins so. Raises ConfigError for another text, ApolloError for none or several."""
    text = what.lower()
    if not is_id(text):
        raise ConfigError(f"{what!r} is no example", f"give its id or at least {PREFIX_MIN} digits of it; {_WHERE}")
    if not (id_ := known(path, text)):
        raise unknown(path, text)
    return id_


# --- a step -------------------------------------------------------------------------------------------------------


class _Fact(NamedTuple):
    """The fields of an event that answers use."""

    seq: int
    at: str
    kind: str
    body: dict[str, Any]


def step_of(path: str, number: int) -> dict[str, Any]:
    """Facts of a step that exists: its intent, its result, and the place of the weights it made."""
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
    return {
        "step": number, "state": result, "example": body["example"], "examples": examples,
        "sources": _sources(path, examples), "reason": body.get("reason") or body.get("note") or "",
        **{name: body.get(name) for name in _STEP},
        "before": {"version": parent, "fingerprint": before},
        "after": {"version": number, "fingerprint": body["fingerprint"]} if completed else None,
        "checkpoint": _first_checkpoint(path, number, last.seq) if completed else None,
        "taken_back": _taken_back(path, number), "at": last.at, "seq": last.seq,
    }  # fmt: skip


def _sources(path: str, examples: list[str]) -> list[dict[str, Any]]:
    """Origin of each example, in their order: file, lines, session and record ids."""
    accepted = _facts(path, f"seq IN (SELECT seq FROM known_examples WHERE id IN {rows.among(examples)})")
    found = {fact.body["example"]: fact.body for fact in accepted if fact.kind == "example.accepted"}
    files = dict(rows.tuples(path, "SELECT source, path FROM sources")) if found else {}
    return [
        {"example": id_, "path": files.get(body["source"], body["source"]), "line": body["line"],
         "origin": body.get("origin", {})}
        for id_ in examples if (body := found.get(id_))
    ]  # fmt: skip


def step_facts(path: str, number: int) -> list[_Fact]:
    """Intent and result of a step; empty if there was none with this number."""
    return _facts(path, f"{_OF_A_STEP} AND key = '{number}'")


def unknown_step(path: str, number: int) -> ApolloError:
    """The error for a step that the journal does not have; it names the steps that there are."""
    if not number:
        return ApolloError("there is no step 0: the weights of version 0 are the untrained model", "steps begin at 1")
    last = rows.scalar(path, f"SELECT max(CAST(key AS INTEGER)) FROM events WHERE {_OF_A_STEP}")
    begun = continued(path)
    if begun is not None and number <= begun.last_step:
        return ApolloError(
            f"step {number} is not in this journal, which begins after step {begun.last_step}",
            f"ask its archive: --file {begun.archive}",
        )
    if last is None:
        return ApolloError(f"there is no step {number}: nothing was learned yet", "see `apollod ctl status`")
    return ApolloError(f"there is no step {number}: the last one is {last}", f"ask for a step from 1 to {last}")


def _fingerprint(path: str, version: int) -> str | None:
    """Fingerprint of the weights of a version; version 0: those that the first trainer found."""
    facts = _facts(path, f"kind = 'step.completed' AND key = '{version}'" if version else "kind = 'trainer.bound'")
    return str(facts[0].body["fingerprint"]) if facts else None


def _taken_back(path: str, step: int) -> dict[str, Any] | None:
    """The rollback that undid a step."""
    facts = _facts(path, f"kind = 'rollback.started' AND {_lists('undone', str(step))}")
    return {"to": facts[0].body["to"], "at": facts[0].at, "seq": facts[0].seq} if facts else None


def _lists(field: str, value: str) -> str:
    """SQL: true if the value is in this list of an event's body."""
    return f"EXISTS (SELECT 1 FROM json_each(body, '$.{field}') AS e WHERE e.value = {value})"


def _first_checkpoint(path: str, step: int, seq: int) -> dict[str, Any] | None:
    """The first checkpoint that includes a step: as new or newer, with no step between that builds on older weights.
    If rollbacks made several of one step, one that is still there."""
    sql = f"""
        SELECT step, path, state, fingerprint, at FROM checkpoints AS c
        WHERE c.state <> 'failed' AND c.step >= {step} AND c.seq > {seq} AND NOT EXISTS (
            SELECT 1 FROM steps AS s WHERE s.seq > {seq} AND s.step <= c.step AND s.parent < {step}
        ) ORDER BY c.step, c.state = 'removed', c.seq LIMIT 1
    """
    return next(iter(rows.objects(path, sql)), None)


# --- an accepted example ------------------------------------------------------------------------------------------


def example_of(path: str, id_: str) -> dict[str, Any]:
    """Facts of an accepted example: origin, state, steps, evidence, decision."""
    (accepted,) = _facts(path, f"seq = (SELECT seq FROM known_examples WHERE id = '{id_}')")
    later = f"seq > {accepted.seq} AND "
    encoded = _facts(path, f"{later}kind = 'example.encoded' AND key = '{id_}'")
    duplicates = rows.scalar(path, f"SELECT count(*) FROM events WHERE kind = 'example.duplicate' AND key = '{id_}'")
    fate, evidence, body = _became(path, id_, later), _evidence(path, id_), accepted.body
    quoted = journal_reader.literal(body["source"])
    files = rows.tuples(path, f"SELECT path FROM sources WHERE source = {quoted}")
    return {
        "id": id_, "state": fate.state, "reason": fate.reason, "source": body["source"],
        "path": files[-1][0] if files else body["source"], "line": body["line"], "origin": body.get("origin", {}),
        "removed": body.get("removed", []), "tier": body.get("tier", "bulk"), "again_of": body.get("again_of", ""),
        **{name: encoded[-1].body[name] if encoded else None for name in ("tokens", "targets", "cut")},
        "duplicates": duplicates, "step": fate.step, "steps": fate.steps, "record": body["record"],
        "evidence": evidence, "decided": _decided(evidence), "lesson": lesson_of(path, id_),
        "replaced": replaced_by(path, id_), "gain": learned_facts.gain_of(path, id_), "at": accepted.at,
        "seq": accepted.seq,
    }  # fmt: skip


def lesson_of(path: str, id_: str) -> dict[str, Any] | None:
    """The lesson that was made of an example given directly, or that the example practises: id (empty: none was made),
    state and reason; None: it has nothing to do with a lesson."""
    named = f"kind IN ('lesson.given', 'lesson.prepared') AND body ->> '$.example' = '{id_}'"
    for (lesson,) in rows.tuples(path, f"SELECT key FROM events WHERE {named} ORDER BY seq DESC LIMIT 1"):
        ((state, reason),) = rows.tuples(path, f"SELECT state, reason FROM lessons WHERE lesson = '{lesson}'")
        return {"lesson": lesson, "state": state, "reason": reason or ""}
    listed = _lists("examples", f"'{id_}'")
    left_out = _facts(path, f"kind = 'lesson.left-out' AND {listed}")
    return {"lesson": "", "state": "left out", "reason": left_out[-1].body["reason"]} if left_out else None


def became(e: dict[str, Any]) -> str:
    """State of an example for people, with its step and the reason."""
    step = f" by step {e['step']}" if e["step"] is not None else ""
    return f"{e['state']}{step}" + (f": {e['reason']}" if e["reason"] else "")


def learned_fields(e: dict[str, Any]) -> list[tuple[str, str]]:
    """Fields of a page, which may be empty: gain, lesson, and the lesson that replaced it."""
    gain, lesson, replaced = e["gain"], e["lesson"], e["replaced"]
    return [
        ("learned", learned_facts.told_gain(gain, e["targets"]) if gain else ""),
        ("lesson", _told_lesson(lesson) if lesson else ""),
        ("replaced", f"{replaced['reason']}: it is not taught again" if replaced else ""),
    ]


def _told_lesson(lesson: dict[str, Any]) -> str:
    said = f"{lesson['lesson']}, {lesson['state']}" if lesson["lesson"] else "none"
    return said + (f": {lesson['reason']}" if lesson["reason"] else "")


def replaced_by(path: str, id_: str) -> dict[str, Any] | None:
    """The lesson that has another answer than this example since, and the reason; None: there is none."""
    facts = _facts(path, f"kind = 'example.replaced' AND key = '{id_}' AND key IN ({learned_facts.REPLACED})")
    return {name: facts[-1].body[name] for name in ("lesson", "reason")} if facts else None


class _Became(NamedTuple):
    """State and its reason, the last step that settled it, and all steps that tried it."""

    state: str
    reason: str
    step: int | None
    steps: list[int]


def _became(path: str, id_: str, later: str) -> _Became:
    """State of an example after all events since its acceptance."""
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
    body = fact.body
    match fact.kind:
        case "rollback.started":
            return f"taken back by the rollback to step {body['to']} (event {fact.seq})"
        case "example.withdrawn" if body.get("reason"):
            return f"forgotten for {body['by']}: {body['reason']} (event {fact.seq})"
        case "example.withdrawn":
            return f"taken out of the queue by {body['by']} (event {fact.seq})"
        case "example.approved" | "example.declined":
            why = f": {body['reason']}" if body["reason"] else ""
            return f"{fact.kind.removeprefix('example.')} by {body['by']}{why}"
        case "example.edited":
            return f"{body['by']} wrote {body['into']} instead"
        case "example.expired":
            return f"nobody decided for {body['days']:g} days"
        case "example.requeued":
            return "asked for again"
    return body.get("reason") or body.get("note") or ""


def _evidence(path: str, example: str) -> list[dict[str, Any]]:
    """Evidence for and against an example: signals that name it, every event of the dreams it came from, verdicts on it
    or that it was made of, and decisions about it."""
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


def _decided(evidence: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The decision in force, which is the last one: what, author (`who`: person, judge, evidence, guard, rule) and
    reason; None: nobody decided anything."""
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
    """Signals in logs about the answers of an example, with the words and records that show them."""
    also = _lists("also", f"'{example}'")
    facts = _facts(path, f"kind = 'signal.flagged' AND (body ->> '$.example' = '{example}' OR {also})")
    return [{**fact.body, "at": fact.at, "seq": fact.seq} for fact in facts]


def told(signal: dict[str, Any]) -> str:
    """A signal for people: kind, polarity, strength, words, records."""
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
