"""The status as a page for people, of at most nineteen lines."""

from apollod.cli.render import FLOAT32_PRODUCTS, growth_text, plain, size
from apollod.wire.status import Base, Growth, Process, Rollback, Running, Start, Status, Undo


def page(s: Status) -> str:
    """The page. What stands in it from outside (paths, errors) cannot steer the terminal."""
    w, q, c, j = s.weights, s.queue, s.checkpoint, s.journal
    lines = [
        f"state       {s.state}" + (f" ({s.error})" if s.error else ""),
        *_waits(s.activities),
        f"step        {s.step}   fingerprint {w.fingerprint or '-'}",
        *([f"running     {_running(s.running)}"] if s.running else []),
        *([f"start       {_start(s.start)}"] if s.start else []),
        f"engine      {_process(s.engine)}" + (f"   {s.engine.url} as {s.engine.model!r}" if s.engine.url else ""),
        f"trainer     {_process(s.trainer)}" + _products(s.optimizer.products),
        f"weights     one copy, {size(w.bytes)} by {w.bridge or '-'}: {w.parameters} tensors, "
        f"{w.live} live, {w.cast} cast, {w.rederive} rederive, {w.frozen} frozen",
        f"queue       {q.pending} pending, {q.trained} trained, {q.duplicates} duplicates, {q.rejected} rejected, "
        f"{q.held} held" + (f", {q.withdrawn} withdrawn" if q.withdrawn else ""),
        f"optimizer   {s.optimizer.name}, lr {s.optimizer.lr:g}, state {size(s.optimizer.state_bytes)}" + _undo(s.undo),
        f"checkpoint  step {c.step if c.step is not None else '-'}, {c.steps_since} steps since, "
        f"{_due(c.due_in_s)}{c.kept} kept in {size(c.bytes)}" + _rollback(s.rollback),
        f"base        {_base(s.base)}",
        f"journal     {j.seq} events, {size(j.bytes)}, head {j.head_hash[:16]}",
        *([f"growth      {_growth(s.growth)}"] if s.growth else []),
        f"inbox       {s.paths.get('inbox', '')}",
        f"up          {s.uptime_s:.0f} s",
    ]
    return plain("\n".join(lines))


def _waits(activities: dict[str, str]) -> list[str]:
    """The line of what cannot begin now, if there is any, by reason. That one step waits for the one before is no
    news."""
    by_reason: dict[str, list[str]] = {}
    for activity, reason in activities.items():
        if reason:
            by_reason.setdefault(reason, []).append(activity)
    running = activities.get("step", "")
    waits = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
    return [f"waits       {'; '.join(waits)}"] if waits and not running.endswith("is running") else []


def _growth(growth: Growth) -> str:
    return growth_text(growth.journal_bytes_per_day, growth.history_bytes_per_day, growth.days_left)


def _running(running: Running) -> str:
    more = f" and {running.examples - 1} more" if running.examples > 1 else ""
    tokens = f" ({running.tokens} tokens)" if running.tokens else ""
    about = "" if running.expected_s is None else f" of about {running.expected_s:.3g} s"
    return f"step {running.step} on {running.example[:12]}{more}{tokens}, {running.elapsed_s:.0f} s{about}"


def _start(start: Start) -> str:
    steps = f" step {start.done + 1} of {start.of}" if start.of else ""
    return f"{start.phase}{steps}, {start.elapsed_s:.0f} s"


def _process(process: Process) -> str:
    if process.given_up:
        return "given up; `apollod ctl resume` tries again"
    if process.pid is None:
        return "down"
    again = f", restarted {process.restarts}x" if process.restarts else ""
    return f"{'ready' if process.ready else 'starting'} (pid {process.pid}{again})"


def _products(dtype: str) -> str:
    return f"; products {FLOAT32_PRODUCTS}" if dtype == "float32" else ""


def _due(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"next in {seconds:.0f} s, " if seconds else "next one is due, "


def _rollback(back: Rollback | None) -> str:
    return f"; going back from step {back.from_} to {back.to}" if back else ""


def _undo(undo: Undo) -> str:
    if not isinstance(undo.steps, int):
        return ""
    if undo.reason:
        return f"; no step can be undone in memory: {undo.reason}"
    return f"; {undo.steps} steps can be undone in memory"


def _base(base: Base) -> str:
    if base.kept:
        return f"untrained weights kept in {base.path} ({base.how})"
    return f"untrained weights not kept: {base.reason}"
