"""`apollod ctl status`, and the status as a page for people, of at most twenty-four lines.

The page is made from the JSON object itself, without msgspec, whose import takes as long as all the rest of the
command. `wire.status` documents the object: required fields are taken by name, later ones may be missing, as they are
in the status of an older daemon.
"""

import argparse
import os
import stat
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.render import size
from apollod.errors import ApolloError

WATCH_S = 1.0


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument("--watch", action="store_true", help="again every second until interrupted")


def _run(args: argparse.Namespace) -> int:
    """Print the status; with --json the daemon's own object, unknown fields included."""
    near = None if args.socket or not args.config else near_socket(args.config)
    path = near or ctl.socket_path(args)
    while True:
        answer = ask_status(path)
        text = "" if args.json else _page(answer)
        if args.watch and not args.json:
            print("\x1b[H\x1b[J" if sys.stdout.isatty() else "", end="")
        render.show(args, answer, text)
        if not args.watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_S)


def _page(answer: dict[str, Any]) -> str:
    try:
        return page(answer)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ApolloError(
            f"this is not the status of an apollod: {error!r}", "use one version of apollod everywhere"
        ) from error


def near_socket(config: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Socket of the daemon by a glance at its configuration, of which a full check takes longer than the rest of the
    command. None: the state directory is not in the file alone, or has no socket; `load_config` then finds the
    reason."""
    if environ.keys() & {"APOLLOD_STATE__DIR", "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY"}:
        return None
    try:
        with open(config, "rb") as file:
            directory = tomllib.load(file)["state"]["dir"]
        path = os.path.join(os.getcwd(), os.path.expanduser(directory), "run", "apollod.sock")
        return path if stat.S_ISSOCK(os.stat(path).st_mode) else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


Object = Mapping[str, Any]


def page(s: Object) -> str:
    """The page. Text from outside (paths, errors) cannot steer the terminal. Raises LookupError, TypeError, ValueError
    or AttributeError for an object that is not a status."""
    w, q, c, j, o = s["weights"], s["queue"], s["checkpoint"], s["journal"], s["optimizer"]
    engine, running, start, growth = s["engine"], s.get("running"), s.get("start"), s.get("growth")
    judge, dreams, capture, back = s.get("judge", {}), s.get("dreams", {}), s.get("capture", {}), s.get("rollback")
    serves = f"   {engine['url']} as {engine['model']!r}" if engine["url"] else ""
    lines = render.fields(
        ("state", s["state"] + (f" ({error})" if (error := s.get("error", "")) else "")),
        ("waits", _waits(s.get("activities", {}))),
        ("step", f"{s['step']}   fingerprint {w['fingerprint'] or '-'}"),
        ("running", running and _running(running)),
        ("start", start and _start(start)),
        ("engine", _process(engine) + serves),
        ("trainer", _process(s["trainer"]) + _products(o.get("products", ""))),
        ("weights", f"{_copies(w['bridge'])}, {size(w['bytes'])} by {w['bridge'] or '-'}: {w['parameters']} tensors, "
                    f"{w['live']} live, {w['cast']} cast, {w['rederive']} rederive, {w['frozen']} frozen"
                    + _alignment(w.get("alignment"))),
        ("elsewhere", _receivers(w.get("receivers", ()))),
        ("queue", f"{q['pending']} pending, {q['trained']} trained, {q['duplicates']} duplicates, "
                  f"{q['rejected']} rejected, {q['held']} held" + _out_of_the_queue(q)),
        ("sources", _sources(s.get("blocked", {}))),
        ("bootstrap", _bootstrap(s.get("bootstrap"))),
        ("optimizer", f"{o['name']}, lr {o.get('lr', 0.0):g}, state {size(o['state_bytes'])}" + _undo(s.get("undo"))),
        ("checkpoint", f"step {c['step'] if c['step'] is not None else '-'}, {c.get('steps_since', 0)} steps since, "
                       f"{_due(c.get('due_in_s'))}{c.get('kept', 0)} kept in {size(c.get('bytes', 0))}"
                       + (f"; going back from step {back['from']} to {back['to']}" if back else "")),
        ("base", _base(s.get("base", {}))),
        ("journal", f"{j['seq']} events, {size(j['bytes'])}, head {j['head_hash'][:16]}"),
        ("judge", _judge(judge) if judge.get("mode", "off") != "off" else ""),
        ("follow-ups", _follow_ups(s.get("follow_ups", {}))),
        ("holding", _holding(s.get("holding", {}))),
        ("dreams", render.dreams_text(dreams) if render.has_patterns(dreams) else ""),
        ("lessons", render.lessons_text(s.get("lessons", {}))),
        ("learned", "; ".join(filter(None, (
            _learned(s.get("learned", {}), q["trained"]), render.environments_text(s.get("environments", [])),
            _preferences(s.get("preferences", {})), _updates(s.get("updates", {})),
        )))),
        ("quality", _quality(s.get("quality") or {})),
        ("growth", growth and render.growth_text(
            growth["journal_bytes_per_day"], growth["history_bytes_per_day"], growth["days_left"]
        )),
    )  # fmt: skip
    lines.append(f"inbox       {s.get('paths', {}).get('inbox', '')}")
    on = f" on a CPU of kind {s['processor']}" if s.get("processor") else ""
    lines += render.fields(("capture", _capture(capture)), ("up", f"{s['uptime_s']:.0f} s{on}"))
    return render.plain("\n".join(lines))


def _receivers(receivers: Sequence[Mapping[str, Any]]) -> str:
    """Engines elsewhere, one after another."""
    told = (f"{one['url']} {one['error'] or 'has it'} (step {one['step']}){_carried(one)}" for one in receivers)
    return "; ".join(told)


def _carried(receiver: Mapping[str, Any]) -> str:
    """Says how much of the change an adapter carries; empty where whole weights were sent."""
    if receiver.get("carried", 1.0) == 1.0:
        return ""
    return f", its adapter carries {receiver['carried']:.0%} of the change, {receiver['left_out']} tensors left out"


def _copies(bridge: str) -> str:
    """How many copies of the weights there are; see `bridges.facts`."""
    return "one copy" if bridge in ("", "memfd", "cuda-ipc") else "the trainer's copy, sent to engines elsewhere"


def _alignment(alignment: Object | None) -> str:
    """Difference between engine and trainer, and the newest version at which all tensors were equal."""
    if not alignment:
        return ""
    usual, same = alignment.get("usual"), alignment.get("same_at")
    past = f"usually {usual:.2g}, " if usual else ""
    tensors = f", tensors the same at step {same}" if same is not None else ""
    apart = f"{alignment['mean_abs_diff']:.2g} apart ({past}halts above {alignment['bound']:.2g})"
    return f"; engine and trainer {apart}{tensors}"


def _capture(capture: Object) -> str:
    """Captured answers of the engine; empty if the daemon does not report them."""
    mode = capture.get("mode") or ""
    if mode in ("", "off"):
        return str(mode)
    return f"{mode}, {capture.get('answers', 0)} answers of the engine are kept, {capture.get('rated', 0)} were rated"


def _waits(activities: Mapping[str, str]) -> str:
    """Activities that cannot begin now, by reason. A step that waits for the one before is left out; dreams, lessons
    and environments are told elsewhere."""
    by_reason: dict[str, list[str]] = {}
    for activity, reason in activities.items():
        if reason and activity not in ("dreaming", "teaching", "rollouts"):
            by_reason.setdefault(reason, []).append(activity)
    if activities.get("step", "").endswith("is running"):
        return ""
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())


def _follow_ups(found: Object) -> str:
    """State of follow-ups; empty until there was one to ask about."""
    if not found.get("cases") and not found.get("waiting"):
        return ""
    if not found["used"]:
        said = f"not used: {found['reason']}" if found["reason"] else "the cases come first"
    else:
        said = f"used, right in {found['right']} of {found['cases']} cases"
        said += f" ({found['reason']})" if found["reason"] else ""
    return f"{said}, {found['waiting']} wait"


def _holding(found: Object) -> str:
    """Answers that steps hold; empty until there was one, or a reason against it."""
    if not found.get("anchors") and not found.get("reason"):
        return ""
    if not found["anchors"]:
        return f"nothing: {found['reason']}"
    moved = "" if found["moved"] is None else f", the model is {found['moved']:.3f} nats a token from them"
    reason = f" ({found['reason']})" if found["reason"] and found["missing"] else ""
    approved = f" ({found['approved']} approved)" if found.get("approved") else ""
    return f"{found['anchors']} answers{approved}, {found['missing']} are to be frozen{moved}{reason}"


def _learned(found: Object, trained: int) -> str:
    """Gain in likelihood of learned lines; empty until one was scored again."""
    if not found.get("scored"):
        return ""
    gain = f"loss {found['before']:.2f} -> {found['after']:.2f} nats a token on average"
    weak = f"; {found['weak']:,} hardly moved" if found["weak"] else ""
    return f"{trained:,} lines; of {found['scored']:,} scored again, {gain}{weak}"


def _updates(found: Object) -> str:
    """The lease of an outside trainer, and what it did so far; empty: none has asked."""
    if (one := found.get("lease")) is not None:
        return f"{one['by']} updates the weights ({one['state']}, since {render.duration(one['since_s'])})"
    return f"{found['committed']:,} updates by outside trainers" if found.get("committed") else ""


def _preferences(found: Object) -> str:
    """Comparisons that were learned or wait for others; empty before the first."""
    margin = "" if found.get("margin") is None else f", margin {found['margin']:.2f}"
    counts = {"pairs": margin, "ratings": ""}
    parts = [f"{found[name]} {name} learned{more}" for name, more in counts.items() if found.get(name)]
    if found.get("gathered"):
        parts.append(f"{found['gathered']} of {found['ratings_per_step']} ratings of the next step are there")
    return ", ".join(parts)


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


def _quality(quality: Object) -> str:
    """State of the quality guard; empty if it is off and never measured."""
    if not quality.get("enabled") and not quality.get("looks"):
        return ""
    incident, step, error = quality["incident"], quality["step"], quality["error"]
    untold = f"; nobody could be told: {quality['untold']}" if quality.get("untold") else ""
    if incident is not None:
        return (
            f"alarm {incident['number']} at step {incident['step']} ({', '.join(incident['metrics'])}), "
            f"{_phase(incident)}: `apollod ctl quality incident show {incident['number']}`{untold}"
        )
    text = "never measured" if step is None else f"{quality['looks']} measurements, the last at step {step}"
    if quality["running"]:
        text += "; measured now"
    elif quality["due"]:
        text += f"; due ({quality['due']})" + (f", waits: {quality['reason']}" if quality["reason"] else "")
    return text + (f"; the last one failed: {error}" if error else "") + untold


def _out_of_the_queue(queue: Object) -> str:
    """Counts of examples that left the queue otherwise; those of 0 are omitted."""
    names = ("withdrawn", "declined", "edited", "expired", "forgetting", "unforgotten")
    return "".join(f", {queue[how]} {how}" for how in names if queue.get(how))


def _sources(blocked: Mapping[str, Object]) -> str:
    """The first path that cannot be read, and how many more; empty if there is none."""
    if not blocked:
        return ""
    path, why = next(iter(blocked.items()))
    more = f"; {len(blocked) - 1} more: `apollod ctl source list`" if len(blocked) > 1 else ""
    return f"{path} cannot be read: {why['reason']}; {why['hint']}{more}"


def _bootstrap(bootstrap: Object | None) -> str:
    """Progress of the bootstrap that is under way."""
    if not bootstrap or bootstrap["state"] not in ("reading", "learning"):
        return ""
    return f"{bootstrap['path']}: {render.bootstrap_text(bootstrap)}"


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
    return f"; products {render.FLOAT32_PRODUCTS}" if dtype == "float32" else ""


def _due(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"next in {seconds:.0f} s, " if seconds else "next one is due, "


def _undo(undo: Object | None) -> str:
    if not undo or not isinstance(undo.get("steps"), int):
        return ""
    if undo.get("reason"):
        return f"; no step can be undone in memory: {undo['reason']}"
    return f"; {undo['steps']} steps can be undone in memory"


def _base(base: Object) -> str:
    if base.get("kept"):
        return f"untrained weights kept in {base['path']} ({base['how']})"
    return f"untrained weights not kept: {base.get('reason', '')}"
