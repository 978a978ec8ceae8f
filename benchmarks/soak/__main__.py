"""Runs the real daemon for hours: does anything stop it, does anything leak, does the journal verify, and do its
replayed steps give the served weights?

The daemon is as `apollod init` makes it, on the small world model that ships (`material.SETTINGS`: additional settings
and their reasons). All at once: users, files in the inbox, corrections, feedback, dreams, the guard, poison, rollbacks,
kills and hangs of every process, failing writes, and malformed input from outside. The order and times are a function
of the seed and of the part. With `--dir` a later call goes on with the same life, journal and records; the report
covers all parts. Exit code 1: something was found wrong ("missed").
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apollod.cli import render
from apollod.demo.world.acting import Acting
from apollod.testing.daemon import DaemonFailed
from apollod.wire import messages as msg
from benchmarks import report
from benchmarks.soak import checks, records, summary, watch
from benchmarks.soak.acts import Acts
from benchmarks.soak.life import MODEL, Life, Status
from benchmarks.soak.schedule import schedule
from benchmarks.soak.users import Users

USERS = 2
LOOK_S = 5.0
TAKEN_S = 300.0
PAUSED_S = 600.0
FIRST_S = 900.0


def main() -> int:
    """Run a part; print the report of all parts."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=30.0, help="of this part (default 30)")
    parser.add_argument(
        "--dir", help="go on there, or begin there and leave it (default: a new one, removed if all is well)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay-steps", type=int, default=1500, help="run again at the end, at most (default 1500)")
    parser.add_argument("--slack", type=float, default=1.0, help="by how much limits of time are longer (default 1)")
    parser.add_argument("--report", action="store_true", help="no new part: only the report of --dir")
    args = parser.parse_args()
    root = Path(args.dir).expanduser().absolute() if args.dir else Path(tempfile.mkdtemp(prefix="apollod-soak-"))
    root.mkdir(parents=True, exist_ok=True)
    kept = records.Records(root / "soak")
    signal.signal(signal.SIGTERM, _cut)
    if not args.report:
        run(args, root, kept)
    found = summary.summary({kind: kept.all(kind) for kind in records.KINDS})
    found["environment"] = report.environment(1)
    show(found, args.json)
    if found["missed"]:
        print(f"soak: journal, logs and records are in {root}", file=sys.stderr)
    elif not args.dir:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if found["missed"] else 0


def _cut(number: int, frame: object) -> None:
    raise SystemExit(128 + number)  # an exception, so that the daemon is stopped and another part can continue


def show(found: dict[str, Any], as_json: bool) -> None:
    """Print one JSON object; for people a table before it, and the misses after it."""
    if as_json:
        print(json.dumps(found))
        return
    print(render.table(summary.COLUMNS, summary.rows(found)))
    print(json.dumps(found, indent=2))
    for one in found["missed"]:
        print(f"missed: {one}")


def run(args: argparse.Namespace, root: Path, kept: records.Records) -> None:
    """Run one part."""
    part = len({one["part"] for one in kept.all("parts")})
    kept.keep(
        "parts", {"part": part, "at": time.time(), "seed": args.seed, "minutes": args.minutes, "slack": args.slack}
    )
    with Acting(args.seed * 1000 + part) as acting:
        life = Life(root, acting.url, kept, args.slack)
        try:
            Part(life, kept, args, part).run()
        except DaemonFailed as error:  # the records up to here are reported
            life.miss("cut short", f"{error}")
        finally:
            life.disk.relent()
            life.daemon.end()


class Part:
    """One part: from a start of the daemon to its stop, with the checks at its end."""

    def __init__(self, life: Life, kept: records.Records, args: argparse.Namespace, part: int) -> None:
        self.life, self._kept, self._args, self._part = life, kept, args, part
        self._looked = 0.0

    def run(self) -> None:
        """Run the whole part."""
        began, before = time.time(), checks.last_event(self.life.daemon)
        daemon = self.life.daemon
        self.life.start()
        self.life.did("start", f"part {self._part}", began, time.time())
        self.life.ask(msg.ResumeRequest())
        with watch.Watch(lambda: self.life.pid, daemon.root / "state", self._sample) as looks:
            with Users(daemon.port, MODEL, f"{self._args.seed}:{self._part}", USERS, self._answer) as users:
                acts = Acts(self.life, users, self._kept, self._part)
                self._first_steps(acts)
                self._act(acts)
                last = self._drained()
            checks.verified(daemon, self.life.miss)
            fingerprint, step = last["weights"]["fingerprint"], last["step"]
            family = watch.family(self.life.pid or 0)
            self._stopped()
        self.life.buried(family)
        if left := looks.left_behind():
            self.life.miss("left behind", f"{left}")
        checks.wrong(daemon, before, self.life.miss)
        kinds = checks.journal(daemon, self._kept, self.life.miss)
        replay = checks.replayed(daemon, fingerprint, step, self._args.replay_steps, self.life.miss)
        self._kept.keep("parts", {
            "part": self._part, "at": began, "seconds": time.time() - began, "kinds": kinds, "replay": replay,
        })  # fmt: skip

    def _first_steps(self, acts: Acts) -> None:
        """Wait for the guard's baseline, before which nothing is learned, and for a first step: earlier kills could
        prevent both on a slow machine for ever."""
        acts.first()
        self.life.wait(lambda status: status["step"] > 0, "a first step", FIRST_S)

    def _act(self, acts: Acts) -> None:
        """Carry out the schedule. The duration of an act, including the daemon's recovery, delays the following
        ones."""
        began, seconds, behind = time.monotonic(), self._args.minutes * 60.0, 0.0
        ends = began + seconds
        try:
            for act in schedule(self._args.seed, self._part, seconds):
                self._look(acts)
                while (left := min(ends, began + act.at_s + behind) - time.monotonic()) > 0:
                    self._look(acts)
                    time.sleep(min(left, 1.0))
                if time.monotonic() >= ends:
                    break
                now = time.monotonic()
                print(f"soak: {now - began:.0f} s: {act.kind}", file=sys.stderr, flush=True)
                acts.do(act)
                behind += time.monotonic() - now
            while time.monotonic() < ends:
                self._look(acts)
                time.sleep(1.0)
        finally:
            acts.settle()

    def _look(self, acts: Acts) -> None:
        if time.monotonic() - self._looked > LOOK_S and (status := self.life.tend()):
            self._looked = time.monotonic()
            self._status(status)
            acts.dream(status)

    def _drained(self) -> Status:
        """Wait until every given line is taken and no step runs any more."""
        self.life.up()
        owed = {key for key, must in checks.must(self._kept).items() if must}
        self.life.wait(lambda _: owed <= checks.taken(self.life.daemon), f"all of {len(owed)} lines", TAKEN_S)
        self.life.ask(msg.PauseRequest())
        last = self.life.wait(lambda status: not status["running"], "paused", PAUSED_S) or self.life.up()
        self._status(last)
        return last

    def _stopped(self) -> None:
        self.life.daemon.end()
        process = self.life.daemon.process
        if process is None or process.returncode:
            self.life.miss("stop", f"it left with {process and process.returncode}: {self.life.daemon.log()[-1500:]}")

    # --- kept ---------------------------------------------------------------------------------------------------------

    def _sample(self, look: watch.Sample) -> None:
        self._kept.keep("samples", {"part": self._part, **look})

    def _answer(self, answer: dict[str, Any]) -> None:
        self._kept.keep("answers", {"part": self._part, **answer})

    def _status(self, status: Status) -> None:
        rows = self.life.daemon.query("SELECT max(seq), sum(kind = 'step.completed') FROM events")
        self._kept.keep("status", {
            "part": self._part, "at": time.time(), "state": status["state"], "error": status["error"][:200],
            "step": status["step"], "steps": rows[0][1] or 0, "events": rows[0][0], "dreams": status["dreams"]["total"],
            "pending": status["queue"]["pending"], "alarm": (status["quality"]["incident"] or {}).get("phase"),
        })  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
