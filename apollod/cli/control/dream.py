"""`apollod ctl dream start|list|show|stop`: the newest dreams, and one as a story."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apollod.adapters.journal.journal_reader import continued, literal
from apollod.adapters.system.clock import iso
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.cli.render import indented
from apollod.errors import ApolloError, ConfigError
from apollod.wire import control_messages as msg

EPILOG = """\
examples:
  apollod ctl dream list --pattern ask            what was dreamt for it last
  apollod ctl dream show d12                      one dream from its seeds to its tests
  apollod ctl dream start --pattern ask --count 5 five practices now, whatever the schedule says
  apollod ctl dream stop                          no dream begins until `ctl dream start`
"""
COLUMNS: tuple[render.Column, ...] = (
    "dream", "pattern", "purpose", "mode", "state", "verdict", ("shown", lambda d: _SHOWN[d["passed"]]), "step",
    ("at", lambda d: d["at"][:19]), ("scenario", "said"),
)  # fmt: skip
_SHOWN: dict[bool | None, str | None] = {None: None, True: "yes", False: "no"}
COUNT_MAX = 1_000_000
COURSE = (
    "dream.requested", "dream.imagined", "dream.answered", "dream.judged", "dream.trained", "dream.tested",
    "dream.settled", "dream.abandoned", "dream.failed",
)  # fmt: skip
_KINDS = rows.among(COURSE)
_HIDDEN = ("dream", "sketch", "votes")
"""Fields that are of no use to a person, or told elsewhere."""
_LISTED = "`apollod ctl dream list` has them"
_PURPOSES = {
    "held-out": "held out: imagined before practice began, and only ever tested",
    "contrast": "in contrast: answered and judged with a text under which the behaviour is wrong; steps hold it",
    "practice": "practised: answered with the instruction, judged, and learned without it",
    "variation": "a variation: new after a practice, and only tested",
}

Object = Mapping[str, Any]


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "situations that are imagined to practise a pattern, and what became of them"
    commands.epilog(parser, EPILOG)
    ctl.actions(
        parser,
        ("start", "dream now, whatever the schedule says, also beside users",
         ctl.telling(lambda args: msg.DreamStartRequest(args.pattern, args.count, ctl.by()), _started),
         ctl.argument("--pattern", default="", metavar="NAME", help="of this one only (default: of all in turn)"),
         ctl.argument("--count", type=_count, default=0, metavar="N",
                      help="so many practices (default: until everything is settled)")),
        ("list", "the newest dreams, the newest first, and what became of them", _list,
         ctl.argument("--pattern", default="", metavar="NAME", help="only dreams of this one"), commands.limited,
         ctl.jsonl, ctl.of_a_copy),
        ("show", "one dream as a story: seeds, situation, answer, verdict, step, tests", _show,
         ctl.argument("dream", metavar="DREAM", help="its id, such as d12"), ctl.of_a_copy),
        ("stop", "begin no dream until `ctl dream start`; the one under way is kept",
         ctl.telling(lambda args: msg.DreamStopRequest(ctl.by()), _stopped)),
    )  # fmt: skip


def _count(text: str) -> int:
    count = commands.limit(text)
    if not 1 <= count <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text} practices are none; give a number from 1 to {COUNT_MAX}")
    return count


def _started(answer: Object) -> str:
    what = f"{answer['count']} practices" if answer["count"] else "dreams until everything is settled"
    of = f" of {answer['pattern']}" if answer["pattern"] else ""
    waits = f"; waits: {answer['reason']}" if answer["reason"] else ""
    return f"{what}{of}; first {answer['next'] or 'nothing'}{waits}"


def _stopped(answer: Object) -> str:
    kept = f"; {answer['dream']} goes on then" if answer["dream"] else ""
    said = f"dreams were stopped already ({answer['stopped']})" if answer["before"] else "no dream begins any more"
    return f"{said}, until `apollod ctl dream start`{kept}"


def _list(args: argparse.Namespace) -> int:
    found = newest(ctl.journal_path(args), args.pattern, args.limit)
    return rows.show_list(args, "dreams", found, COLUMNS)


def _show(args: argparse.Namespace) -> int:
    found = _one(ctl.journal_path(args), args.dream)
    return render.show(args, {"dream": found}, lambda: _trail(found))


# --- in the journal -----------------------------------------------------------------------------------------------


def newest(path: str, pattern: str = "", limit: int = 20) -> list[dict[str, Any]]:
    """Read the newest dreams, of one pattern or of all, the newest first; limit 0: all."""
    of = f"AND body ->> '$.pattern' = {literal(pattern)}" if pattern else ""
    chosen = rows.tuples(
        path,
        f"SELECT key, seq FROM events WHERE kind = 'dream.requested' {of} ORDER BY seq DESC LIMIT "
        f"{limit or rows.ROWS_MAX}",
    )
    if not chosen:
        return []
    # one dream is under way at a time: what lies before the first of them is of others
    found = _rows(path, f"seq >= {chosen[-1][1]}")
    return [found[key] for key, _ in chosen]


def _rows(path: str, where: str) -> dict[str, dict[str, Any]]:
    """Rows of the view `dreams` over these events, by dream, with the exact time and the last words of the scenario."""
    columns = "key, kind, at_ns, body ->> '$.scenario[#-1].content', coalesce(body ->> '$.surrounding.kind', 'none')"
    begun = f"kind IN ('dream.requested', 'dream.imagined') AND {where}"
    beside: dict[str, dict[str, Any]] = {}
    for dream, kind, at_ns, said, surrounding in rows.tuples(path, f"SELECT {columns} FROM events WHERE {begun}"):
        new = {"at": iso(at_ns)} if kind == "dream.requested" else {"said": said, "surrounding": surrounding}
        beside[dream] = beside.get(dream, {"said": None, "surrounding": None}) | new
    found = rows.objects(path, rows.view_over(path, "dreams", where))
    return {
        one["dream"]: one | {"passed": None if one["passed"] is None else bool(one["passed"])} | beside[one["dream"]]
        for one in found
    }


def _one(path: str, what: str) -> dict[str, Any]:
    """All facts of a dream, as `dream show --json` has them. Raises ConfigError for text that is not an id, ApolloError
    for an unknown one."""
    number = what.lower().removeprefix("d")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise ConfigError(f"{what!r} is no dream", f"give an id such as d12; {_LISTED}")
    dream = f"d{int(number)}"
    found = rows.tuples(
        path, f"SELECT kind, seq, at_ns, body FROM events WHERE kind IN {_KINDS} AND key = '{dream}' ORDER BY seq"
    )
    row = _rows(path, f"seq IN ({', '.join(str(seq) for _, seq, _, _ in found)})").get(dream) if found else None
    if row is None:
        raise _unknown(path, dream)
    trail = [
        {"seq": seq, "at": iso(at_ns), "kind": kind}
        | {name: value for name, value in json.loads(body).items() if name not in _HIDDEN}
        for kind, seq, at_ns, body in found
    ]
    return {**row, "instruction": _instruction(path, row), "loss": _loss(path, row), "trail": trail,
            "variations": _variations(path, dream)}  # fmt: skip


def _unknown(path: str, dream: str) -> ApolloError:
    last = newest(path, limit=1)
    if not last:
        return ApolloError(f"there is no dream {dream}: nothing was dreamt yet", "`apollod ctl dream start` begins")
    why, begun = f"there is no dream {dream}: the last one is {last[0]['dream']}", continued(path)
    if begun is not None and int(dream[1:]) < int(last[0]["dream"][1:]):
        return ApolloError(f"{dream} is not in this journal", f"ask its archive: --file {begun.archive}")
    return ApolloError(why, _LISTED)


def _instruction(path: str, row: dict[str, Any]) -> str | None:
    """Instruction of the pattern at the time of the dream."""
    found = rows.scalar(
        path,
        "SELECT body ->> '$.pattern.instruction' FROM events WHERE kind = 'pattern.added' AND key = "
        f"{literal(row.get('pattern') or '')} AND seq < {row.get('seq', 0)} ORDER BY seq DESC LIMIT 1",
    )
    return None if found is None else str(found)


def _loss(path: str, row: dict[str, Any]) -> float | None:
    """Loss of the step that learned the dream."""
    of_step = f"kind = 'step.completed' AND key = '{int(row['step'] or 0)}'"
    loss: float | None = rows.scalar(path, f"SELECT body ->> '$.loss' FROM events WHERE {of_step}")
    return loss


def _variations(path: str, dream: str) -> list[str]:
    found = rows.tuples(
        path, f"SELECT key FROM events WHERE kind = 'dream.requested' AND body ->> '$.of' = '{dream}' ORDER BY seq"
    )
    return [str(key) for (key,) in found]


# --- as a story ---------------------------------------------------------------------------------------------------


def _trail(d: Object) -> list[str]:
    """Lines of the story, not made safe for a terminal yet."""
    lines = [
        f"dream       {d['dream']} of {d['pattern'] or '-'}, {d['state']}"
        + (f": {d['reason']}" if d["reason"] else ""),
        f"purpose     {_purpose(d)}",
        f"requested   {d.get('at', '-')} (event {d.get('seq', '-')})",
        f"cost        {d['tokens']} tokens",
    ]
    if d["instruction"]:
        lines += ["", "== to be learned", *indented(d["instruction"])]
    for event in d["trail"]:
        if (told := _TOLD.get(event["kind"])) is not None:
            lines += ["", *told(d, event)]
    if d["variations"]:
        lines += ["", f"== tested with variations: {' '.join(d['variations'])}"]
    return lines


def _purpose(d: Object) -> str:
    told = _PURPOSES.get(d["purpose"] or "", "-")
    if d["variation_of"]:
        told += f" ({d['variation_of']})"
    if d["purpose"] == "practice" and d["mode"] == "contrast":
        told = "practised in contrast: answered, judged and learned with a text under which the behaviour is wrong"
    return told


def _imagined(d: Object, e: Object) -> list[str]:
    places = e.get("places") or ()
    by = f" by {e['model']}" if e.get("model") else ""
    lines = [f"== a situation is imagined{by}{_cost(e)}"]
    lines += [f"    from {place}" for place in places] or ["    from the instruction alone"]
    scenario = e.get("scenario")
    for turn in scenario if isinstance(scenario, Sequence) and not isinstance(scenario, str) else ():
        lines += [f"  -- {turn['role']}", *indented(turn["content"])]
    return [*lines, *_surrounding(e)]


def _surrounding(e: Object) -> list[str]:
    """Lines about the surrounding of a dream: its system message; `--json` has the rest."""
    around, left_out = e.get("surrounding") or {}, e.get("left_out")
    lines = [f"  -- no other surrounding could be had ({left_out})"] if left_out else []
    if not (messages := around.get("messages", ())):
        return lines
    more = f", {len(messages) - 1} earlier turns" if len(messages) > 1 else ""
    tools = f", {len(around['tools'])} tools" if around.get("tools") else ""
    lines.append(f"  -- before it stands a surrounding of kind {around['kind']} ({around['id']}{more}{tools})")
    return [*lines, *indented(messages[0]["content"])]


def _answered(d: Object, e: Object) -> list[str]:
    sure = "" if e.get("logprob") is None else f", mean log-probability {e['logprob']:.2f} a token"
    weights = "" if e.get("weights_version") is None else f", weights of step {e['weights_version']}"
    return [
        "== the model is told",
        *indented(e["told"]),
        f"  -- and answers{_cost(e)}{weights}{sure}",
        *indented(e["answer"]),
    ]


def _judged(d: Object, e: Object) -> list[str]:
    what = "the better answer" if e.get("answer") else "the answer"
    lines = [f"== {_who(e['by'])} says that {what} is {e['verdict']}" + (f": {e['reason']}" if e.get("reason") else "")]
    lines += [f'    "{e["quote"]}"'] if e.get("quote") else []
    if e.get("better") is not None:
        lines += ["  -- and writes a better one", *indented(e["better"])]
    return lines


def _trained(d: Object, e: Object) -> list[str]:
    loss = "" if d["loss"] is None else f", loss {d['loss']:.4g}"
    how = "with that text" if d["mode"] == "contrast" else "without the instruction"
    return [f"== learned {how}: example {e['example']}, step {e['step']}{loss}"]


def _tested(d: Object, e: Object) -> list[str]:
    when = f", {e['round']}" if e.get("round") else ""
    when += f", sampled answer {e['sample']}" if e.get("sample") else ""
    how = {"bare": "without being told", "told": "told", "contrast": "where it would be wrong"}[e["mode"]]
    how += f", surrounding {e['surrounding']}" if e.get("surrounding", "none") != "none" else ""
    passed = "passed" if e["passed"] else "failed"
    lines = [f"== tested {how}{when}: {passed}, says {_who(e['by'])}" + (f": {e['reason']}" if e.get("reason") else "")]
    if e.get("contrast"):
        lines += ["  -- it is told", *indented(e["contrast"]), "  -- and answers"]
    return [*lines, *indented(e["answer"])]


def _failed(d: Object, e: Object) -> list[str]:
    return [f"== {e['stage']}, attempt {e['attempt']}, gave nothing usable ({e['cause']}): {e['reason']}"]


def _who(by: str) -> str:
    return "the judge" if by == "judge" else f"the check ({by})" if by in ("regex", "schema", "command") else by


def _cost(e: Object) -> str:
    return f" ({e.get('tokens', 0)} tokens, {e.get('seconds', 0.0):.1f} s)"


_TOLD: Mapping[str, Callable[[Object, Object], list[str]]] = {
    "dream.imagined": _imagined,
    "dream.answered": _answered,
    "dream.judged": _judged,
    "dream.trained": _trained,
    "dream.tested": _tested,
    "dream.failed": _failed,
    "dream.abandoned": lambda d, e: [f"== abandoned: {e['reason']}"],
}
