"""Checks of a soak's directory at the end of a part, of the whole journal, including earlier parts."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

from apollod.adapters.journal import journal_reader
from apollod.testing.daemon import Daemon
from benchmarks.soak.records import Records

REPLAY_S = 3600.0
TAKEN_BACK = "SELECT value FROM events, json_each(body, '$.undone') WHERE kind = 'rollback.started'"
"""the steps that rollbacks took back: the served weights do not descend from them"""
WRONG = ("replay.diverged", "training.halted", "quality.references_lost", "base.lost")
"""kinds of events that never have a legitimate cause in a soak"""

_TAKEN = "SELECT body ->> '$.example' FROM events WHERE kind IN ('example.accepted', 'example.duplicate')"

Miss = Callable[[str, str], None]


def verified(daemon: Daemon, miss: Miss) -> bool:
    """Run `apollod ctl journal verify` against the running daemon."""
    done = daemon.ctl("journal", "verify", "--json", check=False, wait_s=600.0)
    if done.returncode:
        miss("journal", f"verify ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-1000:]}")
    return done.returncode == 0


def accepted(daemon: Daemon) -> Counter[str]:
    """Number of acceptances of each line."""
    return Counter(str(key) for (key,) in daemon.query("SELECT key FROM events WHERE kind = 'example.accepted'"))


def taken(daemon: Daemon) -> set[str]:
    """Lines that were accepted, or recognised as duplicates."""
    return {str(key) for (key,) in daemon.query(_TAKEN)}


def must(records: Records) -> dict[str, bool]:
    """Ids of given lines, and for each if it has to be taken."""
    return {one["id"]: one["must"] for one in records.all("given")}


def journal(daemon: Daemon, records: Records, miss: Miss) -> dict[str, int]:
    """Check that each line is taken once and each step number used once, and that no event shows a fault; returns
    events by kind."""
    there = taken(daemon)
    lost = [key for key, owed in must(records).items() if owed and key not in there]
    twice = [key for key, count in accepted(daemon).items() if count > 1]
    if lost or twice:
        miss("lines", f"{len(lost)} were not taken ({lost[:3]}), {len(twice)} more than once ({twice[:3]})")
    _steps(daemon, miss)
    if problem := journal_reader.verify(daemon.journal):
        miss("journal", f"after the stop: {problem}")
    kinds = {str(k): int(n) for k, n in daemon.query("SELECT kind, count(*) FROM events GROUP BY kind")}
    return kinds


def wrong(daemon: Daemon, after: int, miss: Miss) -> None:
    """Report events after event `after` that must not happen in a soak."""
    kinds = ", ".join(f"'{kind}'" for kind in WRONG)
    for seq, kind, body in daemon.query(
        f"SELECT seq, kind, body FROM events WHERE seq > {after} AND kind IN ({kinds})"
    ):
        miss(str(kind), f"event {seq}: {body}")


def last_event(daemon: Daemon) -> int:
    """Number of the last event; 0 in an empty journal."""
    return int(daemon.query("SELECT coalesce(max(seq), 0) FROM events")[0][0]) if daemon.journal.exists() else 0


def _steps(daemon: Daemon, miss: Miss) -> None:
    rows = daemon.query("SELECT kind, body ->> '$.step' FROM events WHERE kind LIKE 'step.%' ORDER BY seq")
    started = [step for kind, step in rows if kind == "step.started"]
    ended = [step for kind, step in rows if kind in ("step.completed", "step.failed")]
    if started != list(range(1, len(started) + 1)) or ended != started[: len(ended)] or len(started) - len(ended) > 1:
        miss("steps", f"{len(started)} started, {len(ended)} ended, not each once and in order")


def replayed(daemon: Daemon, fingerprint: str, step: int, most: int, miss: Miss) -> dict[str, Any]:
    """Replay the steps without the daemon, from the oldest checkpoint that is at most `most` steps back, or from the
    base model, and compare the fingerprint."""
    if not step:
        return {"from": 0, "to": 0, "steps": 0, "fingerprint": fingerprint}
    taken_back = {int(one) for (one,) in daemon.query(TAKEN_BACK)}
    begin = start([one for one in checkpoints(daemon) if one["step"] not in taken_back], step, most)
    done = subprocess.run(
        daemon.command("replay", "--json", "--from", str(begin)), capture_output=True, text=True,
        timeout=REPLAY_S, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout) if done.stdout.strip() else {}
    if not told.get("verified") or told.get("fingerprint") != fingerprint:
        miss("replay", f"from {begin} to {step}, {fingerprint} is served: {done.stdout[-800:]} {done.stderr[-800:]}")
    return {"from": begin, "to": step, "steps": told.get("steps"), "fingerprint": told.get("fingerprint")}


def checkpoints(daemon: Daemon) -> list[dict[str, Any]]:
    """The checkpoints on the disk."""
    done = subprocess.run(
        daemon.command("checkpoint", "list", "--json"), capture_output=True, text=True, timeout=600, check=False
    )
    return list(json.loads(done.stdout)["checkpoints"]) if done.returncode == 0 else []


def start(found: list[dict[str, Any]], step: int, most: int) -> int:
    """The step from which a replay up to `step` begins: 0 if that is no more than `most` steps, else the oldest usable
    checkpoint at most `most` steps back; without one, the newest usable one."""
    if step <= most:
        return 0
    can = sorted(
        one["step"] for one in found
        if one["step"] is not None and one["step"] <= step and one["state"] in ("reachable", "in model directory")
    )  # fmt: skip
    return next((one for one in can if step - one <= most), can[-1] if can else 0)
