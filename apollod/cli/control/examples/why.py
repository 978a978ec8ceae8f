"""`apollod ctl why STEP|EXAMPLE`: from a step to the line it learned from and the weights it made, and back."""

import argparse
import json
import re
from typing import Any

from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.control.examples import example_facts
from apollod.errors import ConfigError

TEXT_MAX = 100  # characters of a record for people; --json has all of it


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument(
        "what", metavar="STEP|EXAMPLE", help="a step number, or an example's id or its first 6 or more digits"
    )
    ctl.of_a_copy(parser)


def _run(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    number, example = _meant(path, args.what)
    step = None if number is None else example_facts.step_of(path, number)
    told = example_facts.example_of(path, example if step is None else step["example"])
    if step is None and told["step"] is not None:
        step = example_facts.step_of(path, told["step"])
    if args.json:
        print(json.dumps({"schema_version": 1, "example": told, "step": step}))
    else:
        parts = (_example_lines(told), _step_lines(step) if step else [])
        lines = (line for part in (parts if number is None else reversed(parts)) for line in part)
        print("\n".join(render.plain(line).replace("\n", "\\n") for line in lines))
    return 0


def _meant(path: str, what: str) -> tuple[int | None, str]:
    """A step number, or the id of an example; an argument that could be both is a step if that exists."""
    text = what.lower()
    number = int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None
    if number is not None and example_facts.step_facts(path, number):
        return number, ""
    prefix = example_facts.is_id(text)
    if number is None and not prefix:
        raise ConfigError(
            f"{what!r} is neither a step nor an example",
            f"give a step number, or at least {example_facts.PREFIX_MIN} hex digits of an example's id",
        )
    if prefix and (id_ := example_facts.known(path, text)):
        return None, id_
    raise example_facts.unknown(path, text) if number is None else example_facts.unknown_step(path, number)


def _example_lines(e: dict[str, Any]) -> list[str]:
    counts = "" if e["tokens"] is None else f"{e['tokens']} tokens, {e['targets']} of them targets, {e['cut']} cut off"
    again = f"seen again {e['duplicates']}x" if e["duplicates"] else ""
    tried = f"tried in steps {' '.join(map(str, e['steps']))}" if e["steps"] not in ([], [e["step"]]) else ""
    return render.fields(
        ("example", f"{e['id']}   {example_facts.became(e)}"),
        ("source", f"{_place(e)}   {e['tier']}, accepted {e['at']} (event {e['seq']})"),
        ("origin", _origin(e["origin"])),
        ("removed", _removed(e["removed"])),
        ("", "; ".join(filter(None, (counts, again, tried)))),
        ("again", e["again_of"] and f"of {e['again_of']}, which taught the same"),
        *example_facts.learned_fields(e),
        ("decided", e["decided"] and _decided(e["decided"])),
        *(("because", f"{fact['kind']}   {_evidence(fact)}   {fact['at']} (event {fact['seq']})")
          for fact in e["evidence"]),
        ("record", _cut(" ".join(json.dumps(e["record"], ensure_ascii=False).split()))),
    )  # fmt: skip


def _decided(last: dict[str, Any]) -> str:
    """The last decision, which is the one in force: author and reason."""
    known = {"person": f"by {last['by']}, a person", "rule": "by a rule", "evidence": "by what a log shows"}
    who = known.get(last["who"], f"by the {last['who']}")
    return f"{last['what']} {who}" + (f": {last['reason']}" if last["reason"] else "") + f"   (event {last['seq']})"


def _place(e: dict[str, Any]) -> str:
    """File and lines of an example."""
    first = e["origin"].get("first_line", 0)
    return f"{e['path']}:{first}-{e['line']}" if 0 < first < e["line"] else f"{e['path']}:{e['line']}"


def _origin(origin: dict[str, Any]) -> str:
    """Session, program, model and records, as far as the log names them."""
    by = " ".join(origin[name] for name in ("agent", "version") if origin.get(name))
    told = [f"session {origin['session']}"] if origin.get("session") else []
    told += [by] if by else []
    told += [f"answers of {origin['model']}"] if origin.get("model") else []
    for name in ("records", "responses"):
        told += [f"{name} {' '.join(origin[name])}"] if origin.get(name) else []
    return ", ".join(told)


def _removed(removed: list[dict[str, Any]]) -> str:
    """Stripped text, by reason."""
    texts: dict[str, list[str]] = {}
    for one in removed:
        texts.setdefault(one["why"], []).append(one["text"])
    return "; ".join(
        f"{why} ({len(said)}x, {sum(map(len, said))} characters): {_cut(' '.join(said[0].split()))}"
        for why, said in texts.items()
    )


def _evidence(fact: dict[str, Any]) -> str:
    return example_facts.told(fact["body"]) if fact["kind"] == "signal.flagged" else _fields(fact["body"])


def _fields(body: dict[str, Any]) -> str:
    said = {
        name: value
        for name, value in body.items()
        if name not in ("example", "examples", "again") and value not in ("", None, [])
    }
    return _cut(" ".join(f"{name}={value}" for name, value in said.items()))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."


def _step_lines(s: dict[str, Any]) -> list[str]:
    loss = "-" if s["loss"] is None else f"{s['loss']:.6g}"
    lr = "-" if s["lr"] is None else f"{s['lr']:g}"
    norms = "" if s["grad_norm"] is None else f", gradient {s['grad_norm']:.4g}, update {s['update_norm']:.4g}"
    before, after, checkpoint = s["before"], s["after"], s["checkpoint"]
    lines = [
        f"step        {s['step']}   {s['state']}"
        + (f": {s['reason']}" if s["reason"] else "")
        + f"   {s['at']} (event {s['seq']})",
        f"learning    lr {lr}, loss {loss}{norms}" + ("" if s["applied"] in (True, None) else "; nothing was written"),
        f"weights     version {before['version'] if before['version'] is not None else '-'} "
        f"({before['fingerprint'] or 'unknown'}) -> "
        + (f"version {after['version']} ({after['fingerprint']})" if after else "unchanged"),
    ]
    if len(s["examples"]) > 1:
        each = [
            f"            {one['example']}   {_place(one)}   {_origin(one['origin'])}".rstrip() for one in s["sources"]
        ]
        lines[1:1] = [f"together    {len(s['examples'])} examples: {' '.join(s['examples'])}", *each]
    if after:
        missing = "in none" if s["taken_back"] else "not in one yet"
        where = f"step {checkpoint['step']} {checkpoint['path']}" if checkpoint else missing
        removed = " (removed since, to make room)" if checkpoint and checkpoint["state"] == "removed" else ""
        lines.append(f"checkpoint  {where}{removed}")
    if back := s["taken_back"]:
        lines.append(f"taken back  by the rollback to step {back['to']}   {back['at']} (event {back['seq']})")
    return lines
