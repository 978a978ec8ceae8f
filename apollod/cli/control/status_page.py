"""The status as a page for people, of at most twenty-four lines.

Made from the JSON object itself, without msgspec, whose import takes as long as all the rest of `apollod ctl status`.
`wire.status` says what is in the object: what it requires is taken by name, what came later may be missing, as it is in
the status of an older daemon.
"""

from collections.abc import Mapping
from typing import Any

from apollod.cli.render import (
    FLOAT32_PRODUCTS,
    bootstrap_text,
    dreams_text,
    growth_text,
    has_patterns,
    lessons_text,
    plain,
    size,
)

Object = Mapping[str, Any]


def page(s: Object) -> str:
    """The page. What stands in it from outside (paths, errors) cannot steer the terminal.

    Raises LookupError, TypeError, ValueError or AttributeError for what is no status.
    """
    w, q, c, j, o = s["weights"], s["queue"], s["checkpoint"], s["journal"], s["optimizer"]
    engine, running, start, growth = s["engine"], s.get("running"), s.get("start"), s.get("growth")
    judge, dreams = s.get("judge", {}), s.get("dreams", {})
    error = s.get("error", "")
    lines = [
        f"state       {s['state']}" + (f" ({error})" if error else ""),
        *_waits(s.get("activities", {})),
        f"step        {s['step']}   fingerprint {w['fingerprint'] or '-'}",
        *([f"running     {_running(running)}"] if running else []),
        *([f"start       {_start(start)}"] if start else []),
        f"engine      {_process(engine)}" + (f"   {engine['url']} as {engine['model']!r}" if engine["url"] else ""),
        f"trainer     {_process(s['trainer'])}" + _products(o.get("products", "")),
        f"weights     one copy, {size(w['bytes'])} by {w['bridge'] or '-'}: {w['parameters']} tensors, "
        f"{w['live']} live, {w['cast']} cast, {w['rederive']} rederive, {w['frozen']} frozen"
        + _alignment(w.get("alignment")),
        f"queue       {q['pending']} pending, {q['trained']} trained, {q['duplicates']} duplicates, "
        f"{q['rejected']} rejected, {q['held']} held" + _out_of_the_queue(q),
        *_sources(s.get("blocked", {})),
        *_bootstrap(s.get("bootstrap")),
        f"optimizer   {o['name']}, lr {o.get('lr', 0.0):g}, state {size(o['state_bytes'])}" + _undo(s.get("undo", {})),
        f"checkpoint  step {c['step'] if c['step'] is not None else '-'}, {c.get('steps_since', 0)} steps since, "
        f"{_due(c.get('due_in_s'))}{c.get('kept', 0)} kept in {size(c.get('bytes', 0))}" + _rollback(s.get("rollback")),
        f"base        {_base(s.get('base', {}))}",
        f"journal     {j['seq']} events, {size(j['bytes'])}, head {j['head_hash'][:16]}",
        *([f"judge       {_judge(judge)}"] if judge.get("mode", "off") != "off" else []),
        *_follow_ups(s.get("follow_ups", {})),
        *_holding(s.get("holding", {})),
        *([f"dreams      {dreams_text(dreams)}"] if has_patterns(dreams) else []),
        *([f"lessons     {lessons}"] if (lessons := lessons_text(s.get("lessons", {}))) else []),
        *_learned(s.get("learned", {}), q["trained"]),
        *_quality(s.get("quality") or {}),
        *([f"growth      {_growth(growth)}"] if growth else []),
        f"inbox       {s.get('paths', {}).get('inbox', '')}",
        *_capture(s.get("capture", {})),
        f"up          {s['uptime_s']:.0f} s" + (f" on a CPU of kind {s['processor']}" if s.get("processor") else ""),
    ]
    return plain("\n".join(lines))


def _alignment(alignment: Object | None) -> str:
    """Difference between engine and trainer, and the newest version at which every tensor was equal."""
    if not alignment:
        return ""
    usual, same = alignment.get("usual"), alignment.get("same_at")
    past = f"usually {usual:.2g}, " if usual else ""
    tensors = f", tensors the same at step {same}" if same is not None else ""
    apart = f"{alignment['mean_abs_diff']:.2g} apart ({past}halts above {alignment['bound']:.2g})"
    return f"; engine and trainer {apart}{tensors}"


def _capture(capture: Object) -> list[str]:
    """Line about captured answers of the engine; none if the daemon does not report it."""
    mode = capture.get("mode")
    kept = ""
    if mode != "off":
        kept = f", {capture.get('answers', 0)} answers of the engine are kept, {capture.get('rated', 0)} were rated"
    return [f"capture     {mode}{kept}"] if mode else []


def _waits(activities: Mapping[str, str]) -> list[str]:
    """The line of what cannot begin now, if there is any, by reason. That one step waits for the one before is no
    news; what dreams and lessons wait for stands in their own lines."""
    by_reason: dict[str, list[str]] = {}
    for activity, reason in activities.items():
        if reason and activity not in ("dreaming", "teaching"):
            by_reason.setdefault(reason, []).append(activity)
    running = activities.get("step", "")
    waits = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
    return [f"waits       {'; '.join(waits)}"] if waits and not running.endswith("is running") else []


def _follow_ups(found: Object) -> list[str]:
    """Line about follow-ups; omitted until there was one to ask about."""
    if not found.get("cases") and not found.get("waiting"):
        return []
    if not found["used"]:
        said = f"not used: {found['reason']}" if found["reason"] else "the cases come first"
    else:
        said = f"used, right in {found['right']} of {found['cases']} cases"
        said += f" ({found['reason']})" if found["reason"] else ""
    return [f"follow-ups  {said}, {found['waiting']} wait"]


def _holding(found: Object) -> list[str]:
    """Line about what steps hold; omitted until something could be, or could not."""
    if not found.get("anchors") and not found.get("reason"):
        return []
    if not found["anchors"]:
        return [f"holding     nothing: {found['reason']}"]
    moved = "" if found["moved"] is None else f", the model is {found['moved']:.3f} nats a token from them"
    reason = f" ({found['reason']})" if found["reason"] and found["missing"] else ""
    approved = f" ({found['approved']} approved)" if found.get("approved") else ""
    return [f"holding     {found['anchors']} answers{approved}, {found['missing']} are to be frozen{moved}{reason}"]


def _learned(found: Object, trained: int) -> list[str]:
    """Line about how much better learned lines are said; omitted until one was scored again."""
    if not found.get("scored"):
        return []
    gain = f"loss {found['before']:.2f} -> {found['after']:.2f} nats a token on average"
    weak = f"; {found['weak']:,} hardly moved" if found["weak"] else ""
    return [f"learned     {trained:,} lines; of {found['scored']:,} scored again, {gain}{weak}"]


def _judge(judge: Object) -> str:
    known = judge["agreement"]
    figure = "" if known is None else f", agreement {known:.2f} ({judge['low']:.2f} to {judge['high']:.2f})"
    trust = "trusted" if judge["trusted"] else "not trusted: its verdicts wait for a person"
    reason = f" ({judge['reason']})" if judge["reason"] else ""
    return f"{judge['model'] or '-'} on {judge['mode']}, {trust}{figure}, {judge['waiting']} wait{reason}"


def _phase(incident: Object) -> str:
    match incident["phase"]:
        case "searching":
            return f"searching (replay {incident['replays']} of at most {incident['replays_max']})"
        case "named" if incident["verdict"] == "rate":
            return str(incident["reason"])
        case "named" if incident["again"]:
            return f"{len(incident['culprits'])} examples held, {incident['again']} steps of others to learn again"
        case phase:
            return str(phase)


def _quality(quality: Object) -> list[str]:
    """The line of the quality guard, where it is on or ever measured."""
    if not quality.get("enabled") and not quality.get("looks"):
        return []
    incident, step, error = quality["incident"], quality["step"], quality["error"]
    untold = f"; nobody could be told: {quality['untold']}" if quality.get("untold") else ""
    if incident is not None:
        return [
            f"quality     alarm {incident['number']} at step {incident['step']} ({', '.join(incident['metrics'])}), "
            f"{_phase(incident)}: `apollod ctl quality incident show {incident['number']}`{untold}"
        ]
    text = "never measured" if step is None else f"{quality['looks']} measurements, the last at step {step}"
    if quality["running"]:
        text += "; measured now"
    elif quality["due"]:
        text += f"; due ({quality['due']})" + (f", waits: {quality['reason']}" if quality["reason"] else "")
    return [f"quality     {text}" + (f"; the last one failed: {error}" if error else "") + untold]


def _out_of_the_queue(queue: Object) -> str:
    """What somebody took out of it, or nobody decided about, as far as there is any."""
    names = ("withdrawn", "declined", "edited", "expired", "forgetting", "unforgotten")
    return "".join(f", {queue[how]} {how}" for how in names if queue.get(how))


def _sources(blocked: Mapping[str, Object]) -> list[str]:
    """The line of what cannot be read, if there is anything: the first of it, and how many more."""
    if not blocked:
        return []
    path, why = next(iter(blocked.items()))
    more = f"; {len(blocked) - 1} more: `apollod ctl source list`" if len(blocked) > 1 else ""
    return [f"sources     {path} cannot be read: {why['reason']}; {why['hint']}{more}"]


def _bootstrap(bootstrap: Object | None) -> list[str]:
    """The line of the one that is under way."""
    if not bootstrap or bootstrap["state"] not in ("reading", "learning"):
        return []
    return [f"bootstrap   {bootstrap['path']}: {bootstrap_text(bootstrap)}"]


def _growth(growth: Object) -> str:
    return growth_text(growth["journal_bytes_per_day"], growth["history_bytes_per_day"], growth["days_left"])


def _running(running: Object) -> str:
    more = f" and {running['examples'] - 1} more" if running["examples"] > 1 else ""
    tokens = f" ({running['tokens']} tokens)" if running["tokens"] else ""
    expected = running["expected_s"]
    about = "" if expected is None else f" of about {expected:.3g} s"
    return f"step {running['step']} on {running['example'][:12]}{more}{tokens}, {running['elapsed_s']:.0f} s{about}"


def _start(start: Object) -> str:
    steps = f" step {start['done'] + 1} of {start['of']}" if start.get("of") else ""
    return f"{start['phase']}{steps}, {start['elapsed_s']:.0f} s"


def _process(process: Object) -> str:
    if process.get("given_up"):
        return "given up; `apollod ctl resume` tries again"
    if process["pid"] is None:
        return "down"
    again = f", restarted {process['restarts']}x" if process["restarts"] else ""
    return f"{'ready' if process['ready'] else 'starting'} (pid {process['pid']}{again})"


def _products(dtype: str) -> str:
    return f"; products {FLOAT32_PRODUCTS}" if dtype == "float32" else ""


def _due(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"next in {seconds:.0f} s, " if seconds else "next one is due, "


def _rollback(back: Object | None) -> str:
    return f"; going back from step {back['from']} to {back['to']}" if back else ""


def _undo(undo: Object) -> str:
    if not isinstance(undo.get("steps"), int):
        return ""
    if undo.get("reason"):
        return f"; no step can be undone in memory: {undo['reason']}"
    return f"; {undo['steps']} steps can be undone in memory"


def _base(base: Object) -> str:
    if base.get("kept"):
        return f"untrained weights kept in {base['path']} ({base['how']})"
    return f"untrained weights not kept: {base.get('reason', '')}"
