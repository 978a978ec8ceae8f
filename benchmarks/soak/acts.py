"""The acts upon the daemon of a soak, one method for each kind."""

import contextlib
import errno
import json
import os
import random
import signal
import time
from typing import Any

from apollod.core.settings import PatternSettings
from apollod.demo.world import instructions
from apollod.demo.world.instructions import WORDS, Instruction
from apollod.wire import messages as msg
from apollod.wire.records import parse_line
from benchmarks.soak import material, watch
from benchmarks.soak.life import Life, Status
from benchmarks.soak.records import Records
from benchmarks.soak.schedule import CHILDREN, KILL, Act
from benchmarks.soak.users import Users
from benchmarks.thrown import requests
from benchmarks.thrown.files import Thrower
from benchmarks.thrown.refusing_disk import ERRORS, FAILING

MEBIBYTES = 64
HUNG_S = (3.0, 30.0)
FILLED_S = (1.0, 10.0)
STALL_S = 60.0
"""seconds after [trainer] or [engine] stall_s within which a hung child is gone"""
WATCHDOG_S = 60.0
"""WatchdogSec of contrib/systemd"""
ACTIVE, SETTLED_MAX = 2, 4
"""number of behaviours that are dreamt, and the most settled ones"""
PER_PART = 1_000_000
"""file numbers reserved for each part"""


class Requests(requests.Requests):
    """Random requests, without those that would end the soak (a pause), and without noise to be learned."""

    KINDS = tuple(kind for kind in requests.Requests.KINDS if kind != "train")
    LEFT_OUT = (*requests.LEFT_OUT, msg.PauseRequest, msg.DreamStopRequest, msg.RollbackRequest)


class Acts:
    """Carries out the acts of a part."""

    def __init__(self, life: Life, users: Users, records: Records, part: int) -> None:
        self.life, self.users, self._records = life, users, records
        daemon = life.daemon
        self.files = Thrower(daemon.inbox, daemon.root / "beside", MEBIBYTES, material.line, part * PER_PART)
        self.sender = Requests(daemon.port, daemon.socket)
        self._given: dict[str, bool] = {}
        self._over = 0.0
        """time at which the last disturbance ended and the daemon began to recover"""

    def do(self, act: Act) -> None:
        """Carry out an act and record it. A wrong answer of the daemon is recorded as missed."""
        self._over, began, chance = 0.0, time.time(), random.Random(act.chance)
        try:
            told = getattr(self, f"_{act.kind.replace(' ', '_')}")(chance)
        except AssertionError as error:
            told = "missed"
            self.life.miss(act.kind, repr(error))
        except OSError as error:
            told = f"not now: {error!r}"
        self.life.did(act.kind, str(told), began, self._over or time.time())
        self._keep_given()

    def first(self) -> None:
        """Give something to learn."""
        self.files.throw_kind("whole", random.Random(f"first {self.users.seed}"))
        self._keep_given()

    def settle(self) -> None:
        """Finish all writing of files and requests."""
        self.files.settle()
        self.sender.close()
        self._keep_given()

    def dream(self, status: Status) -> None:
        """Add a behaviour if fewer than ACTIVE are dreamt; drop the oldest settled one if there are too many for the
        small model."""
        dreams = status["dreams"]
        if dreams["active"] < ACTIVE:
            ((added,),) = self.life.daemon.query("SELECT count(*) FROM events WHERE kind = 'pattern.added'")
            pattern = PatternSettings(**material.pattern(added), settle=(9, 10))
            self.life.ask(msg.PatternAddRequest(pattern, "soak"))
        if dreams["settled"] > SETTLED_MAX:
            known = (self.life.ask(msg.PatternsRequest()) or {}).get("patterns", [])
            oldest = next((one["name"] for one in known if one["phase"] == "settled"), None)
            if oldest:
                self.life.ask(msg.PatternRetireRequest(oldest, "soak"))

    def _keep_given(self) -> None:
        now = dict.fromkeys(self.files.perhaps, False) | dict.fromkeys(self.files.good | self.sender.good, True)
        fresh = [{"id": key, "must": must} for key, must in now.items() if self._given.get(key) is not must]
        self._given = now
        if fresh:
            self._records.keep("given", *fresh)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _kill(self, chance: random.Random) -> str:
        victim = chance.choice(KILL)
        if victim == "supervisor":
            self.life.kill()
        elif pid := self._pid(victim):
            (os.killpg if victim in CHILDREN else os.kill)(pid, signal.SIGKILL)
        self._recovered()
        return victim

    def _hang(self, chance: random.Random) -> str:
        """Stop a process for a while; then it continues as if nothing had happened."""
        victim, seconds = chance.choice(KILL), chance.uniform(*HUNG_S)
        if (pid := self._pid(victim)) is None:
            return f"{victim}: not there"
        self._signal(victim, pid, signal.SIGSTOP)
        time.sleep(seconds)
        self._signal(victim, pid, signal.SIGCONT)
        self._recovered()
        return f"{victim} for {seconds:.0f} s"

    def _hang_for_good(self, chance: random.Random) -> str:
        """Stop a process until it is ended: a child by the daemon, the daemon by the service manager."""
        victim = chance.choice([*CHILDREN, "supervisor"])
        if (pid := self._pid(victim)) is None:
            return f"{victim}: not there"
        self._signal(victim, pid, signal.SIGSTOP)
        if victim == "supervisor":
            time.sleep(WATCHDOG_S)
            self.life.kill()
        else:
            self._ended_by_daemon(victim, pid)
        self._recovered()
        return victim

    def _recovered(self) -> None:
        self._over = time.time()
        self.life.up()

    def _ended_by_daemon(self, victim: str, pid: int) -> None:
        limit_s = (float(material.SETTINGS[victim]["stall_s"]) + STALL_S) * self.life.slack
        deadline = time.monotonic() + limit_s
        while watch.process(pid) and time.monotonic() < deadline:
            self.life.tend()
            time.sleep(1.0)
        if watch.process(pid):
            self.life.miss("hangs", f"a stopped {victim} was not ended within {limit_s:.0f} s")
            self._signal(victim, pid, signal.SIGKILL)

    def _signal(self, victim: str, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if victim in CHILDREN else os.kill)(pid, number)

    def _pid(self, role: str) -> int | None:
        """Pid of a child from the daemon's status; of other processes by their role."""
        if role == "supervisor" or self.life.pid is None:
            return self.life.pid
        if role in CHILDREN:
            status = self.life.ask(msg.StatusRequest())
            return status[role]["pid"] if status else None
        found = (one for pid in watch.family(self.life.pid) if (one := watch.process(pid)))
        return next((one["pid"] for one in found if one["role"] == role), None)

    def _disk(self, chance: random.Random) -> str:
        """Make writes of one process fail for a while."""
        victim = chance.choice(["supervisor", "supervisor", "trainer", "engine"])
        error, kinds, seconds = chance.choice(ERRORS), chance.choice(FAILING), chance.uniform(*FILLED_S)
        after, count = chance.choice([0, 0, 1, 5, 20]), chance.choice([1, 3, 10**6, 10**6])
        if (pid := self._pid(victim)) is None:
            return f"{victim}: not there"
        self.life.disk.refuse(pid, error, kinds, after, count)
        try:
            self.files.throw(chance)
            time.sleep(seconds)
        finally:
            hits = self.life.disk.relent()
        self._recovered()
        return f"{victim}: {errno.errorcode[error]} of {kinds} after {after} for {seconds:.0f} s, {hits} times"

    # --- from outside -------------------------------------------------------------------------------------------------

    def _files(self, chance: random.Random) -> str:
        return ", ".join(self.files.throw(chance) for _ in range(chance.randint(1, 3)))

    def _requests(self, chance: random.Random) -> str:
        try:
            return self.sender.throw(chance)
        finally:
            self.sender.settle()

    def _teach(self, chance: random.Random) -> str:
        line = material.line(chance)
        if chance.random() < 0.2:
            asked, said = (turn["content"] for turn in json.loads(line)["messages"][-2:])
            done = self.life.daemon.ctl("train", "--prompt", asked, "--completion", f" {said}", check=False)
            return f"ctl train: {done.returncode} {done.stderr[:100]}"
        status, answer = self.life.daemon.post("/train", {"examples": [json.loads(line)]})
        assert status in (202, 503), (status, answer)
        if status == 202 and not answer.get("duplicates"):
            self.files.good[parse_line(f"{line}\n".encode()).id] = line.encode()
        return f"/train: {status}"

    def _feedback(self, chance: random.Random) -> str:
        if self.users.newest is None:
            return "no answer yet"
        ident, scenario = self.users.newest
        body: dict[str, Any] = {"response_id": ident, "rating": chance.choice(["good", "bad"])}
        if body["rating"] == "bad":
            body["correction"] = instructions.answer(scenario, [Instruction("end", chance.choice(WORDS))])
        status, answer = self.life.daemon.post("/feedback", body)
        assert status < 500 or status == 503, (status, answer)
        return f"{body['rating']}: {status} {answer}"

    def _poison(self, chance: random.Random) -> str:
        self.life.daemon.drop(f"poison{time.time_ns()}.jsonl", *material.poison(chance))
        return "dropped"

    def _rollback(self, chance: random.Random) -> str:
        status = self.life.up()
        to = max(0, status["step"] - chance.randint(1, 6))
        return f"{status['step']} to {to}: {self.life.ask(msg.RollbackRequest(to), 120.0)}"

    def _forget(self, chance: random.Random) -> str:
        rows = self.life.daemon.query("SELECT example FROM steps ORDER BY step DESC LIMIT 50")
        if not rows:
            return "nothing was learned"
        return f"{self.life.ask(msg.ForgetRequest([chance.choice(rows)[0]], 'soak'))}"

    def _checkpoint(self, chance: random.Random) -> str:
        return str(self.life.daemon.post("/checkpoint", {})[0])
