"""`apollod ctl why STEP|EXAMPLE`: from a step to the line it learned from and the weights it made, and back."""

import argparse
import json
import re
from typing import Any, NamedTuple

from apollod.adapters import journal_reader
from apollod.cli import examples, render
from apollod.cli.moment import unknown_step
from apollod.errors import ConfigError

SCHEMA_VERSION = 1
TEXT_MAX = 100  # characters of a record for people; --json has all of it
_AT = "strftime('%Y-%m-%dT%H:%M:%fZ', at_ns / 1e9, 'unixepoch')"
_STATES = {"step.failed": "held", "step.completed": "trained"}


class _Fact(NamedTuple):
    """An event as far as an answer needs it."""

    seq: int
    at: str
    kind: str
    body: dict[str, Any]


def run(args: argparse.Namespace, path: str) -> int:
    """Answer from the journal at `path`."""
    number, example = _meant(path, args.what)
    step = None if number is None else _step(path, number)
    told = _example(path, example if step is None else step["example"])
    if step is None and told["step"] is not None:
        step = _step(path, told["step"])
    if args.json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "example": told, "step": step}))
    else:
        parts = (_example_lines(told), _step_lines(step) if step else [])
        lines = (line for part in (parts if number is None else reversed(parts)) for line in part)
        print("\n".join(render.plain(line).replace("\n", "\\n") for line in lines))
    return 0


def _meant(path: str, what: str) -> tuple[int | None, str]:
    """A step number, or the id of an example; an argument that could be both is a step if there is one."""
    text = what.lower()
    number = int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None
    if number is not None and _of_step(path, number):
        return number, ""
    prefix = examples.is_id(text)
    if number is None and not prefix:
        raise ConfigError(
            f"{what!r} is neither a step nor an example",
            f"give a step number, or at least {examples.PREFIX_MIN} hex digits of an example's id",
        )
    if prefix and (id_ := examples.known(path, text)):
        return None, id_
    raise examples.unknown(path, text) if number is None else unknown_step(path, number)


# --- from the journal ---------------------------------------------------------------------------------------------


def _step(path: str, number: int) -> dict[str, Any]:
    """What is known of a step that exists: its intent, its result, and where the weights it made can be found."""
    facts = _of_step(path, number)
    body: dict[str, Any] = {}
    for fact in facts:
        body |= fact.body
    last = facts[-1]
    parent = body.get("parent")
    before = _fingerprint(path, parent) if parent is not None else None
    completed = last.kind == "step.completed"
    result = {"step.completed": "completed", "step.failed": "failed"}.get(last.kind, "running")
    names = ("lr", "loss", "loss_limit", "applied", "grad_norm", "update_norm", "tokens", "targets", "seconds", "window", "digest")
    return {
        "step": number, "state": result, "example": body["example"], "examples": body.get("examples") or [body["example"]],
        "reason": body.get("reason") or body.get("note") or "",
        **{name: body.get(name) for name in names},
        "before": {"version": parent, "fingerprint": before},
        "after": {"version": number, "fingerprint": body["fingerprint"]} if completed else None,
        "checkpoint": _first_checkpoint(path, number, last.seq) if completed else None,
        "taken_back": _taken_back(path, number),
        "at": last.at, "seq": last.seq,
    }


def _of_step(path: str, number: int) -> list[_Fact]:
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
    for step_, path_, state, fingerprint, at in _rows(path, sql):
        return {"step": step_, "path": path_, "state": state, "fingerprint": fingerprint, "at": at}
    return None


def _example(path: str, id_: str) -> dict[str, Any]:
    """An accepted example: where it came from, what it became."""
    (accepted,) = _facts(path, f"seq = (SELECT seq FROM known_examples WHERE id = '{id_}')")
    later = f"seq > {accepted.seq} AND "
    encoded = _facts(path, f"{later}kind = 'example.encoded' AND key = '{id_}'")
    rejected = _facts(path, f"{later}kind = 'example.rejected' AND key = '{id_}'")
    among = _lists("examples", f"'{id_}'")
    tried = _facts(path, f"{later}kind IN ('step.completed', 'step.failed') AND (body ->> '$.example' = '{id_}' OR {among})")
    moved = _facts(path, f"{later}((kind = 'rollback.started' AND {among}) OR (kind = 'example.requeued' AND key = '{id_}'))")
    settled = [fact for fact in tried if not fact.body.get("apart")]  # a failed step of several settles none of them
    ((duplicates,),) = _rows(path, f"SELECT count(*) FROM events WHERE kind = 'example.duplicate' AND key = '{id_}'")
    state, reason = "pending", ""
    if rejected:
        state, reason = "rejected", rejected[-1].body["reason"]
    elif settled:
        result = settled[-1].body
        state = _STATES[settled[-1].kind] if result.get("applied", True) else "skipped"
        reason = result.get("reason") or result.get("note") or ""
        if moved and moved[-1].seq > settled[-1].seq:
            back = moved[-1].kind == "rollback.started"
            state = "undone" if back else "pending"
            reason = f"taken back by the rollback to step {moved[-1].body['to']} (event {moved[-1].seq})" if back else "asked for again"
    source = accepted.body["source"]
    quoted = source.replace("'", "''")
    files = _rows(path, f"SELECT path FROM sources WHERE source = '{quoted}'")
    return {
        "id": id_, "state": state, "reason": reason, "source": source, "path": files[-1][0] if files else source,
        "line": accepted.body["line"], "tier": accepted.body.get("tier", "bulk"), "tokens": encoded[-1].body["tokens"] if encoded else None,
        "targets": encoded[-1].body["targets"] if encoded else None, "cut": encoded[-1].body["cut"] if encoded else None,
        "duplicates": duplicates, "step": settled[-1].body["step"] if settled else None,
        "steps": [fact.body["step"] for fact in tried], "record": accepted.body["record"], "evidence": _evidence(path, id_),
        "at": accepted.at, "seq": accepted.seq,
    }


def _evidence(path: str, example: str) -> list[dict[str, Any]]:
    """Why it was worth learning: signals that name it, and every event of the dreams it came of, verdicts among them.

    Not decoded, so that what a newer apollod wrote is told as it stands.
    """
    kinds = "kind GLOB 'signal.*' OR kind GLOB 'dream.*' OR kind GLOB 'verdict.*'"
    dreams = f"SELECT key FROM events WHERE kind GLOB 'dream.*' AND body ->> '$.example' = '{example}'"
    facts = _facts(path, f"({kinds}) AND (body ->> '$.example' = '{example}' OR key IN ({dreams}))")
    return [{"kind": fact.kind, "body": fact.body, "at": fact.at, "seq": fact.seq} for fact in facts]


def _facts(path: str, where: str) -> list[_Fact]:
    rows = _rows(path, f"SELECT seq, {_AT}, kind, body FROM events WHERE {where} ORDER BY seq")
    return [_Fact(seq, at, kind, journal_reader.decode_body(path, seq, body)) for seq, at, kind, body in rows]


def _rows(path: str, sql: str) -> list[tuple[Any, ...]]:
    return journal_reader.query(path, sql, seconds=examples.SECONDS).rows


# --- for people ---------------------------------------------------------------------------------------------------


def _example_lines(e: dict[str, Any]) -> list[str]:
    became = f"{e['state']}" + (f" by step {e['step']}" if e["step"] is not None else "") + (f": {e['reason']}" if e["reason"] else "")
    counts = "" if e["tokens"] is None else f"{e['tokens']} tokens, {e['targets']} of them targets, {e['cut']} cut off"
    again = f"seen again {e['duplicates']}x" if e["duplicates"] else ""
    tried = f"tried in steps {' '.join(map(str, e['steps']))}" if e["steps"] not in ([], [e["step"]]) else ""
    return [
        f"example     {e['id']}   {became}",
        f"source      {e['path']}:{e['line']}   {e['tier']}, accepted {e['at']} (event {e['seq']})",
        *([f"            {'; '.join(filter(None, (counts, again, tried)))}"] if counts or again or tried else []),
        *(f"because     {fact['kind']}   {_fields(fact['body'])}   {fact['at']} (event {fact['seq']})" for fact in e["evidence"]),
        f"record      {_cut(' '.join(json.dumps(e['record'], ensure_ascii=False).split()))}",
    ]


def _fields(body: dict[str, Any]) -> str:
    return _cut(" ".join(f"{name}={value}" for name, value in body.items() if name != "example"))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."


def _step_lines(s: dict[str, Any]) -> list[str]:
    loss = "-" if s["loss"] is None else f"{s['loss']:.6g}"
    lr = "-" if s["lr"] is None else f"{s['lr']:g}"
    norms = "" if s["grad_norm"] is None else f", gradient {s['grad_norm']:.4g}, update {s['update_norm']:.4g}"
    before, after, checkpoint = s["before"], s["after"], s["checkpoint"]
    lines = [
        f"step        {s['step']}   {s['state']}" + (f": {s['reason']}" if s["reason"] else "") + f"   {s['at']} (event {s['seq']})",
        f"learning    lr {lr}, loss {loss}{norms}" + ("" if s["applied"] in (True, None) else "; nothing was written"),
        f"weights     version {before['version'] if before['version'] is not None else '-'} ({before['fingerprint'] or 'unknown'}) -> "
        + (f"version {after['version']} ({after['fingerprint']})" if after else "unchanged"),
    ]
    if len(s["examples"]) > 1:
        lines.insert(1, f"together    {len(s['examples'])} examples: {' '.join(s['examples'])}")
    if after:
        missing = "in none" if s["taken_back"] else "not in one yet"
        where = f"step {checkpoint['step']} {checkpoint['path']}" if checkpoint else missing
        removed = " (removed since, to make room)" if checkpoint and checkpoint["state"] == "removed" else ""
        lines.append(f"checkpoint  {where}{removed}")
    if back := s["taken_back"]:
        lines.append(f"taken back  by the rollback to step {back['to']}   {back['at']} (event {back['seq']})")
    return lines
