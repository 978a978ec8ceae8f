"""All that may come in from outside, thrown at a running daemon: files, requests, and errors of its disk.

APOLLOD_ATTACK_MINUTES minutes (5 s; `make crash`: 60), but at least ROUNDS rounds, seed APOLLOD_CRASH_SEED: the same
seed throws the same.
"""

import errno
import os
import random
import time
from pathlib import Path

import pytest
from support.daemon import STUB, Daemon
from support.effort import LONG
from support.invariants import journal_of, say

from apollod.adapters.journal import journal_reader
from apollod.core import events as ev
from apollod.errors import ApolloError
from apollod.testing import daemon as driver
from apollod.wire import messages as msg
from benchmarks.thrown.files import Thrower
from benchmarks.thrown.refusing_disk import ERRORS, FAILING, RefusingDisk
from benchmarks.thrown.requests import Front, Requests

pytestmark = pytest.mark.crash

MINUTES = float(os.environ.get("APOLLOD_ATTACK_MINUTES", "60" if LONG else "0.08"))
SEED = int(os.environ.get("APOLLOD_CRASH_SEED", "1"))
MEBIBYTES = 1024 if LONG else 64
ANSWERS_S = 10.0
"""until status is told, whatever comes in"""
TAKEN_S = 120.0
"""without any line that is taken"""
MENDED_S = 60.0
PER_ROUND = 4
WARM_ROUNDS = 5 if LONG else 3
ROUNDS = 6
"""at least; every third one meets a disk that refuses"""
THREADS_MORE, FILES_MORE, BYTES_MORE = 30, 20, 300 << 20
"""than after the first rounds: of its pool of 40 threads, of files that are just open, of memory"""


@pytest.mark.timeout(int(MINUTES * 60) + 900)
def test_a_daemon_survives_all_that_comes_in(tiny_model: Path, tmp_path: Path) -> None:
    if not RefusingDisk.is_possible():
        pytest.skip("no gcc here")
    attack = Attack(tiny_model, tmp_path)
    say(f"attack: seed {SEED}, {MINUTES:g} minutes")
    try:
        attack.run(MINUTES * 60)
    finally:
        attack.daemon.end(30)
    attack.check_stopped()


class Attack:
    """One daemon, and what is thrown at it."""

    def __init__(self, model: Path, root: Path) -> None:
        self.disk = RefusingDisk(root)
        self.daemon = Daemon(root, model, engine=STUB)
        self.files = Thrower(self.daemon.inbox, root / "beside", MEBIBYTES)
        self.restarts = 0
        self._said = 0
        self._began: dict[str, int] = {}

    def run(self, seconds: float) -> None:
        """Throw for so long; a last round may take longer."""
        self._start()
        deadline, number = time.monotonic() + seconds, 0
        with Front(self.daemon.socket) as front:
            requests = Requests(front.port, self.daemon.socket)
            try:
                while time.monotonic() < deadline or number < ROUNDS:
                    number += 1
                    self._round(number, requests, front)
                    if number == WARM_ROUNDS:
                        self._began = self._usage()
                self.files.settle()
                requests.settle()
                good = self.files.good | requests.good
                self._wait_until_taken(good)
                self._check_usage()
            finally:
                requests.close()
        taken, perhaps = self._taken(), self.files.perhaps.keys()
        assert {key: taken.get(key) for key in good} == dict.fromkeys(good, 1)
        assert all(taken.get(key, 1) == 1 for key in perhaps)
        say(f"attack: {number} rounds, {len(good)} lines, {self.restarts} starts after errors of the disk")

    def check_stopped(self) -> None:
        """After its end."""
        assert journal_reader.verify(self.daemon.journal) is None
        accepted = [e.example for e in journal_of(self.daemon) if isinstance(e, ev.ExampleAccepted)]
        assert len(accepted) == len(set(accepted))

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _round(self, number: int, requests: Requests, front: Front) -> None:
        """A function of seed and number."""
        chance = random.Random(f"{SEED}:{number}")
        pid, thrown = self._pid(), list[str]()
        failing = self._refuse(chance) if number % 3 == 0 else ""
        try:
            for _ in range(PER_ROUND):
                thrown.append(self.files.throw(chance))
            if not failing:
                thrown.append(requests.throw(chance))
            time.sleep(0.8)
            self._check_answers(thrown)
        finally:
            hits = self.disk.relent()
            failed = f"; {failing}, {hits} times" if failing else ""
            say(f"attack {number} (seed {SEED}): {', '.join(thrown)}{failed}")
        requests.settle()
        if failing:
            self._mend()
        assert self._pid() == pid or failing, self.daemon.log()[-3000:]
        assert not front.failures, front.failures

    def _refuse(self, chance: random.Random) -> str:
        """Some of its writes fail from now on."""
        error, kinds = chance.choice(ERRORS), chance.choice(FAILING)
        after, count = chance.choice([0, 0, 1, 5, 20]), chance.choice([1, 1, 3, 10**6])
        self.disk.refuse(self._pid(), error, kinds, after, count)
        return f"{errno.errorcode[error]} of {kinds} after {after}, {count} times at most"

    def _pid(self) -> int:
        assert self.daemon.process is not None
        return self.daemon.process.pid

    def _start(self) -> None:
        super(Daemon, self.daemon).start(self.disk.environment)
        self.daemon.wait(_serves, "an engine")
        self.daemon.request(msg.PauseRequest())

    def _mend(self) -> None:
        """The disk is well again: what waits goes on, or status says that a start is needed."""
        deadline = time.monotonic() + MENDED_S
        while not _serves(status := self._check_answers(["mended"])):
            if "restart the daemon" in status["error"]:
                return self._restart()
            assert time.monotonic() < deadline, status
            time.sleep(0.2)

    def _restart(self) -> None:
        self.daemon.end(60)
        assert self.daemon.process is not None and self.daemon.process.returncode in (0, 1), self.daemon.log()[-3000:]
        self._check_log()
        self.restarts += 1
        self._start()

    # --- what has to be true ------------------------------------------------------------------------------------------

    def _check_answers(self, thrown: list[str]) -> driver.Status:
        begun = time.monotonic()
        assert self.daemon.alive(), (thrown, self.daemon.log()[-5000:])
        try:
            status: driver.Status = self.daemon.request(msg.StatusRequest(), ANSWERS_S)
        except ApolloError as error:
            time.sleep(1)  # it may be dying
            raise AssertionError(f"after {thrown}: {error}; {self.daemon.log()[-3000:]}") from error
        assert time.monotonic() - begun < ANSWERS_S
        self._check_log()
        return status

    def _check_log(self) -> None:
        said = self.daemon.log()
        fresh, self._said = said[self._said :], len(said)
        assert "Traceback" not in fresh, fresh[-5000:]

    def _taken(self) -> dict[str, int]:
        rows = self.daemon.query("SELECT key, count(*) FROM events WHERE kind = 'example.accepted' GROUP BY key")
        return {str(key): int(count) for key, count in rows}

    def _wait_until_taken(self, good: dict[str, bytes]) -> None:
        """Raises AssertionError with the lines, and files that have them, if none was taken for TAKEN_S."""
        missing, since = good.keys() - self._taken().keys(), time.monotonic()
        while missing:
            time.sleep(1.0)
            left = missing - self._taken().keys()
            missing, since = left, time.monotonic() if left < missing else since
            if time.monotonic() - since > TAKEN_S:
                lines = [good[one] for one in sorted(missing)[:3]]
                files = [path for path in self.daemon.inbox.rglob("*") if path.is_file() and _holds(path, lines)]
                raise AssertionError(f"{len(missing)} of {len(good)} not taken: {lines} in {files}")

    def _usage(self) -> dict[str, int]:
        """Threads, open files and resident bytes of the supervisor; at rest."""
        pid = self._pid()
        said = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        files = len(os.listdir(f"/proc/{pid}/fd"))
        return {"threads": int(said["Threads"]), "files": files, "bytes": int(said["VmRSS"].split()[0]) << 10}

    def _check_usage(self) -> None:
        now, limits = self._usage(), {"threads": THREADS_MORE, "files": FILES_MORE, "bytes": BYTES_MORE}
        say(f"attack: {self._began} -> {now}")
        assert all(now[name] - self._began.get(name, now[name]) <= more for name, more in limits.items())


def _holds(path: Path, lines: list[bytes]) -> bool:
    """Is one of the lines in a file, as far as it is small and not compressed?"""
    if path.is_symlink() or path.stat().st_size > 1 << 20:
        return False
    content = path.read_bytes()
    return any(line in content for line in lines)


def _serves(status: driver.Status) -> bool:
    """Does the engine, and does nothing need a person? What is written then does not wait for a trainer."""
    return bool(status["engine"]["ready"]) and not status["error"]
