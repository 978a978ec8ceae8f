"""Text for people: tables and the status page. Plain ASCII, no meaning by colour."""

from collections.abc import Sequence
from typing import Any

CELL_MAX = 60


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell; numbers to the right."""
    names = [plain(" ".join(c.split())) for c in columns]
    cells = [[_cell(v) for v in row] for row in rows]
    widths = [max([len(c), *(len(r[i]) for r in cells)]) for i, c in enumerate(names)]
    right = [bool(rows) and all(isinstance(r[i], int | float | None) for r in rows) for i in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        return "  ".join(v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)).rstrip()

    return "\n".join([line(names), line(["-" * w for w in widths]), *(line(r) for r in cells)])


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = plain(" ".join(text.split())[: CELL_MAX + 1])  # cut first: a value may be very long
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 3] + "..."


def plain(text: str) -> str:
    """Text from outside, so that nothing in it can steer the terminal; lines and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def size(count: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def status(s: dict[str, Any]) -> str:
    """The status object as a page of at most fifteen lines."""
    w, q, e, t, c, j = s["weights"], s["queue"], s["engine"], s["trainer"], s["checkpoint"], s["journal"]
    lines = [
        f"state       {s['state']}" + (f" ({s['error']})" if s["error"] else ""),
        f"step        {s['step']}   fingerprint {w['fingerprint'] or '-'}",
        f"engine      {_child(e)}" + (f"   {e['url']} as {e['model']!r}" if e["url"] else ""),
        f"trainer     {_child(t)}",
        f"weights     one copy, {size(w['bytes'])} by {w['bridge'] or '-'}: {w['parameters']} tensors, "
        f"{w['live']} live, {w['cast']} cast, {w['rederive']} rederive, {w['frozen']} frozen",
        f"queue       {q['pending']} pending, {q['trained']} trained, {q['duplicates']} duplicates, "
        f"{q['rejected']} rejected, {q['held']} held",
        f"optimizer   {s['optimizer']['name']}, lr {s['optimizer']['lr']:g}, state {size(s['optimizer']['state_bytes'])}",
        f"checkpoint  step {c['step'] if c['step'] is not None else '-'}, {c['steps_since']} steps since, {c['kept']} kept "
        f"in {size(c['bytes'])}" + _rollback(s["rollback"]),
        f"base        {_base(s['base'])}",
        f"journal     {j['seq']} events, {size(j['bytes'])}, head {j['head_hash'][:16]}",
        f"inbox       {s['paths'].get('inbox', '')}",
        f"up          {s['uptime_s']:.0f} s",
    ]
    return plain("\n".join(lines))


def _rollback(back: dict[str, Any] | None) -> str:
    return f"; going back from step {back['from']} to {back['to']}" if back else ""


def _base(base: dict[str, Any]) -> str:
    if base["kept"]:
        return f"untrained weights kept in {base['path']} ({base['how']})"
    return f"untrained weights not kept: {base['reason']}"


def _child(child: dict[str, Any]) -> str:
    if child["given_up"]:
        return "given up; `apollod ctl resume` tries again"
    if child["pid"] is None:
        return "down"
    again = f", restarted {child['restarts']}x" if child["restarts"] else ""
    return f"{'ready' if child['ready'] else 'starting'} (pid {child['pid']}{again})"
