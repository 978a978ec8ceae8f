"""The daemon with vLLM on such a model: start, one copy of the weights, steps, rollbacks, checkpoints, every kill."""

import os
import signal
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from apollod.testing.daemon import UP, Status
from apollod.wire import messages as msg
from benchmarks import report
from benchmarks.daemon import Daemon
from benchmarks.scale import processes
from benchmarks.scale.progress import say

FIRST, SECOND = 1, 5
"""steps undone by the two rollbacks, one right after the other"""
LONG_S = 1800.0
POLL_S = 0.1
COPIES = 3


class Life:
    """One daemon from its start to its end; `figures` grows."""

    def __init__(self, root: Path, model: Path, examples: list[str], checkpoint: str = "") -> None:
        """`examples`: lines to learn from. `checkpoint`: additional lines of that section."""
        self._daemon = Daemon(root, model, checkpoint=f"every_s = 0\n{checkpoint}")
        self._examples = iter(examples)
        self.figures: dict[str, float] = {}
        self.equal: list[bool] = []
        """one entry for each comparison: was the memory bit-identical?"""

    # --- parts --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Measure the time until it is ready, and of each phase."""
        began = time.perf_counter()
        self._daemon.start()
        self._wait_ready("ready", began)
        self._wait_aligned("aligned", began)

    def one_copy(self) -> None:
        """Measure the memory of each process, and the number of copies of the weights."""
        assert self._daemon.process is not None
        pid = self._daemon.process.pid
        found, file = processes.taken(pid), processes.weights_bytes(pid)
        self.figures |= {"weights_file_bytes": file, "weights_pss_bytes": sum(each.weights_pss for each in found)}
        self.figures["pss_bytes"] = sum(each.pss for each in found)
        for each in found:
            self.figures |= {f"{each.role}_pss_bytes": each.pss, f"{each.role}_anonymous_bytes": each.anonymous}
            self.figures |= {f"{each.role}_weights_rss_bytes": each.weights_rss}
        say("one copy: " + ", ".join(f"{each.role} {each.pss / 1e9:.3f} GB" for each in found))

    def learn(self, tokens: int) -> None:
        """Run steps without a pause in between: as many as the rollbacks undo, and one more."""
        count = FIRST + SECOND + 1
        self._learn(count)
        rows = self._daemon.query(
            "SELECT c.at_ns, json_extract(c.body, '$.seconds'), json_extract(c.body, '$.tokens') "
            "FROM events c WHERE c.kind = 'step.completed' ORDER BY c.seq"
        )
        if any(row[2] != tokens for row in rows):
            raise SystemExit(f"the steps were to learn {tokens} tokens each: {rows}")
        self.figures["step_s"] = report.median([float(row[1]) for row in rows[1:]])
        self.figures["step_period_s"] = (int(rows[-1][0]) - int(rows[0][0])) / 1e9 / (len(rows) - 1)
        status = self._daemon.status()
        self.figures |= {"steps_kept": float(status["undo"]["steps"] or 0)}
        self.figures["state_reported_bytes"] = float(status["optimizer"]["state_bytes"])
        say(f"steps: {self.figures['step_s']:.2f} s each, every {self.figures['step_period_s']:.2f} s")

    def roll_back(self) -> None:
        """Measure the two rollbacks, and copies of as many bytes as the weights have, before and after them."""
        copies = self._copies()
        for name, steps in (("first", FIRST), ("second", SECOND)):
            to, began = self._daemon.status()["step"] - steps, time.perf_counter()
            answer = self._daemon.request(msg.RollbackRequest(to), LONG_S)
            seconds = time.perf_counter() - began
            self.figures |= {f"rollback_{name}_s": seconds, f"rollback_{name}_reported_s": answer["seconds"]}
            self.figures[f"rollback_{name}_replayed"] = answer["replayed"]
            say(f"rollback of {steps}: {seconds:.2f} s, by {answer['how']}, {answer['replayed']} replayed")
        self.figures["copy_s"] = report.median([*copies, *self._copies()])
        say(f"a copy of the weights: {self.figures['copy_s']:.3f} s")

    def checkpoint(self) -> None:
        """Measure two checkpoints: the first has the changes of all steps before it, the second those of one more
        step."""
        for name in ("first", "second"):
            self._learn(1)
            began = time.perf_counter()
            step = self._daemon.request(msg.CheckpointRequest(), LONG_S)["step"]
            self.figures[f"checkpoint_{name}_seen_s"] = time.perf_counter() - began
            ((seconds, held, written),) = self._daemon.query(
                f"SELECT seconds, held_s, written_bytes FROM checkpoints WHERE step = {step} AND state = 'committed'"
            )
            self.figures |= {f"checkpoint_{name}_s": seconds, f"checkpoint_{name}_held_s": held}
            self.figures[f"checkpoint_{name}_written_bytes"] = written
            say(f"checkpoint: {seconds:.1f} s, in {held:.2f} s of it no step could run, {written / 1e6:.0f} MB")

    def recover(self) -> None:
        """Kill the trainer in the middle of a step, the engine, and the supervisor. Measures the time until all is
        restored, including steps that no checkpoint has, and if the memory is the same."""
        self._learn(1)
        self._kill_trainer()
        self._kill_engine()
        self._kill_supervisor()

    def stop(self) -> None:
        """Stop in order, with a checkpoint."""
        self.figures["stop_s"] = self._daemon.stop(LONG_S)
        say(f"stopped in {self.figures['stop_s']:.1f} s")

    def end(self) -> None:
        """End the daemon in any state."""
        self._daemon.end()

    # --- kills ----------------------------------------------------------------------------------------------------

    def _kill_trainer(self) -> None:
        step, before = self._daemon.status()["step"], self._digest()
        self._submit(1)
        self._daemon.wait(lambda s: s["running"], "to begin a step", LONG_S)
        time.sleep(0.6 * self.figures.get("step_s", 1.0))  # by then its backward pass writes
        pid = self._daemon.status()["trainer"]["pid"]
        torn = self._digest() != before
        os.kill(pid, signal.SIGKILL)
        began = time.perf_counter()
        say(f"killed the trainer in step {step + 1}, {'half written' if torn else 'nothing written yet'}")
        self._daemon.wait(lambda s: s["trainer"]["ready"] and s["trainer"]["pid"] != pid, "a trainer", LONG_S, POLL_S)
        self._record("killed_trainer_ready_s", began)
        self._daemon.wait(lambda s: s["step"] > step, "the step again", LONG_S, POLL_S)
        self._record("killed_trainer_learned_s", began)
        self._wait_aligned("killed_trainer_aligned", began)
        self._daemon.request(msg.RollbackRequest(step), LONG_S)
        self._same(before)

    def _kill_engine(self) -> None:
        before, pid = self._digest(), self._daemon.status()["engine"]["pid"]
        os.kill(pid, signal.SIGKILL)
        began = time.perf_counter()
        say("killed the engine")
        self._daemon.wait(
            lambda s: s["engine"]["ready"] and s["engine"]["pid"] != pid and self._served(), "served again", LONG_S
        )
        self._record("killed_engine_serves_s", began)
        self._wait_ready("killed_engine_ready", began)
        self._wait_aligned("killed_engine_aligned", began)
        self._same(before)

    def _kill_supervisor(self) -> None:
        before = self._digest()
        self._daemon.kill()
        began = time.perf_counter()
        say("killed the supervisor")
        self._daemon.start()
        self._wait_ready("killed_supervisor_ready", began)
        self._wait_aligned("killed_supervisor_aligned", began)
        self._same(before)

    # --- small things ---------------------------------------------------------------------------------------------

    def _record(self, name: str, began: float) -> None:
        self.figures[name] = time.perf_counter() - began
        say(f"{name.removesuffix('_s').replace('_', ' ')}: {self.figures[name]:.1f} s")

    def _wait_ready(self, name: str, began: float) -> None:
        phases: dict[str, float] = {}

        def look(status: Status) -> None:
            phase = (status.get("start") or {}).get("phase", "")
            if phase and phase not in phases:
                phases[phase] = time.perf_counter() - began
                say(f"  {phase} from {phases[phase]:.1f} s on")

        ready = self._daemon.wait(
            lambda s: s["state"] in UP and s["engine"]["ready"] and s["trainer"]["ready"], "ready", LONG_S, POLL_S, look
        )
        if ready["error"]:
            raise SystemExit(f"the daemon is up, but: {ready['error']}")
        self._record(f"{name}_s", began)

    def _wait_aligned(self, name: str, began: float) -> None:
        """Wait until the comparison of engine and trainer, which may follow a start, is over."""
        self._daemon.wait(
            lambda s: s["weights"]["alignment"] and not s["start"], "to compare trainer and engine", LONG_S, POLL_S
        )
        self._record(f"{name}_s", began)

    def _submit(self, count: int) -> None:
        self._daemon.submit(*(next(self._examples) for _ in range(count)))

    def _learn(self, count: int) -> None:
        self._submit(count)
        step = self._daemon.status()["step"]
        self._daemon.wait(
            lambda s: s["step"] >= step + count and not s["running"] and not s["queue"]["pending"],
            f"to learn {count}", LONG_S, POLL_S,
        )  # fmt: skip

    def _digest(self) -> str:
        assert self._daemon.process is not None
        return processes.weights_digest(self._daemon.process.pid)

    def _same(self, before: str) -> None:
        self.equal.append(self._digest() == before)
        if not self.equal[-1]:
            say("the weights in memory are NOT those of before")

    def _served(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self._daemon.url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def _copies(self) -> list[float]:
        """Seconds of copies of as many bytes as the weights have, to already mapped memory."""
        import numpy as np

        size = int(self.figures.get("weights_file_bytes", 0)) or 1 << 30
        source, target, found = np.ones(size, np.uint8), np.ones(size, np.uint8), []
        for _ in range(COPIES):
            began = time.perf_counter()
            np.copyto(target, source)
            found.append(time.perf_counter() - began)
        return found
