"""The whole suite in two phases at once: vLLM, and beside it everything else.

    python tests/phases.py [-n WORKERS]

vLLM takes memory and cores, and tests of what it leaves behind would see another one's: these run one after another.
They leave much of two cores idle, which goes to several workers with all other tests: none of these leaves what a test
of vLLM counts. The workers are nicer, so that what is one long row goes on almost as fast as alone. On a single core
the workers wait until the row has ended. Exit code 0 only if all of it passes; the last lines say what failed where.

Everything started here may keep compiled modules beside their sources, whatever PYTHONDONTWRITEBYTECODE says: the tests
start `apollod` some hundred times, and each start would compile it again.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ALONE = "engine or alone"
"""Markers of tests that run one after another."""
TESTS = Path(__file__).parent
NEVER_ALONE = ("crash", "store", "property", "unit")
"""Directories of which no test is marked as in ALONE (tests/unit/test_phases.py looks): what runs one after another is
not looked for there, since that would import all of it."""
IN_TURN = ("crash", "integration", "golden", "store", "property", "unit")
"""Directories in the order in which workers take their files: what waits for processes first, beside vLLM, and files
that take seconds last, so that all workers end at once. tests/gpu and tests/conformance are marked as in ALONE as a
whole."""
OWN_TARGET = ("conformance/trl",)
"""Directories that neither phase runs: `make conformance` does, which installs packages of 290 MB for them."""
NICER = 5
WORKERS_MAX = 8  # each takes about a gigabyte
WORKERS_OF_TWO_CORES = 4  # a test of a daemon waits for it half of its time; 6 % faster than 3
COMPILES = "from apollod.trainer.kernels import kernels_cpu; kernels_cpu.warm_up()"
"""What numba compiles, 11 s in a new checkout, is compiled once while tests are collected, and not by every worker."""
NOTHING_COLLECTED = 5  # pytest's exit code


@dataclass
class Result:
    """What one phase came to."""

    name: str
    code: int
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.code in (0, NOTHING_COLLECTED)

    def line(self) -> str:
        counted = ", ".join(f"{count} {what}" for what, count in self.counts.items() if count) or "nothing ran"
        return f"{self.name}: {counted} in {self.seconds:.0f} s" + ("" if self.ok else f" (exit code {self.code})")


def read_report(path: Path) -> tuple[dict[str, int], list[str]]:
    """(numbers by outcome, names of what failed) of a JUnit report; nothing of a report that was not written."""
    if not path.exists():
        return {}, []
    counts, failed = {"passed": 0, "failed": 0, "skipped": 0}, []
    for case in ElementTree.parse(path).iter("testcase"):
        outcomes = {child.tag for child in case}
        if outcomes & {"failure", "error"}:
            failed.append(f"{case.get('classname', '')}::{case.get('name', '')}")
        counts["failed" if outcomes & {"failure", "error"} else "skipped" if "skipped" in outcomes else "passed"] += 1
    return counts, failed


class Phase:
    """One pytest over the tests that `expression` selects. `shown`: print as it comes; else at its end, and it gives
    way to the one that is shown."""

    def __init__(
        self, name: str, expression: str, options: Sequence[str], environment: Mapping[str, str], shown: bool = True
    ) -> None:
        self.name = name
        self._directory = tempfile.TemporaryDirectory()
        self._report = Path(self._directory.name) / "report.xml"
        self._output = None if shown else open(Path(self._directory.name) / "output", "w+")
        command = [
            sys.executable, "-m", "pytest", "-q", "--durations=10", "-m", expression, f"--junitxml={self._report}",
            *options,
        ]  # fmt: skip
        if shown:
            print(f"--- {name}", flush=True)
        self._start = time.monotonic()
        keeping = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            command,
            env={**keeping, **environment},
            stdout=self._output,
            stderr=self._output,
            preexec_fn=None if shown else lambda: os.nice(NICER),
        )

    def wait(self) -> Result:
        """Its result, once it has ended."""
        code = self._process.wait()
        seconds = time.monotonic() - self._start
        if self._output is not None:
            self._output.seek(0)
            print(f"--- {self.name}\n{self._output.read()}", flush=True)
            self._output.close()
        result = Result(self.name, code, seconds, *read_report(self._report))
        self._directory.cleanup()
        return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="run the whole suite")
    cores = len(os.sched_getaffinity(0))
    workers = min(cores * WORKERS_OF_TWO_CORES // 2, WORKERS_MAX)
    parser.add_argument("-n", type=int, default=workers, help="workers of what runs side by side (%(default)s)")
    parser.add_argument("tests", nargs="*", help="files or directories (all)")
    given = parser.parse_args(arguments)
    # A worker is one of several, and most tensors here are small: threads of torch would only wait for each other.
    # Trainers are told their number of threads by whoever starts them.
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    kept = ["-n", str(given.n), "--dist", "loadfile", "--no-loadscope-reorder"]
    side_by_side = [*kept, *(given.tests or [str(TESTS / name) for name in IN_TURN])]
    one_by_one = given.tests or [f"--ignore={TESTS / name}" for name in (*NEVER_ALONE, *OWN_TARGET)]

    def others(shown: bool) -> Phase:
        return Phase("side by side", f"not ({ALONE})", side_by_side, one_thread, shown)

    subprocess.Popen([sys.executable, "-c", COMPILES])
    beside = [others(shown=False)] if cores > 1 else []
    results = [Phase("one after another", ALONE, one_by_one, {}).wait()]
    results += [phase.wait() for phase in beside or [others(shown=True)]]
    print("--- in all")
    for result in results:
        print(result.line())
    for result in results:
        for name in result.failed:
            print(f"FAILED {name}")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
