"""The whole suite: vLLM first, beside it what does not disturb it; then the rest side by side.

    python tests/phases.py [-n WORKERS]

vLLM takes memory and cores, and tests of what it leaves behind would see another one's: these run one after another.
They leave a core idle most of the time, which goes to the tests in BESIDE. Everything else runs in several workers
afterwards. Exit code 0 only if all of it passes; the last lines say what failed where.

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
BESIDE = ("crash", "unit", "property", "store")
"""Directories whose tests leave nothing that a test of vLLM would count; they take the core that it leaves idle. None
of their tests is marked as in ALONE (tests/unit/test_phases.py looks): what runs one after another is not looked for
there, since that would import all of it."""
WORKERS_MAX = 8  # each takes about a gigabyte
WORKERS_OF_TWO_CORES = 3  # a test of a daemon waits for it half of its time
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
    """One pytest over the tests that `expression` selects. `shown`: print as it comes."""

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
            command, env={**keeping, **environment}, stdout=self._output, stderr=self._output
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
    others, workers_of = f"not ({ALONE})", ["-n", str(given.n), "--dist", "loadfile"]
    beside = [] if given.tests or cores < 2 else [str(TESTS / name) for name in BESIDE]
    first = [Phase("beside it", others, beside, one_thread, shown=False)] if beside else []
    rest = [f"--ignore={directory}" for directory in beside]
    alone = Phase("one after another", ALONE, [*rest, *given.tests], {})
    results = [alone.wait(), *(phase.wait() for phase in first)]
    results.append(Phase("side by side", others, [*workers_of, *rest, *given.tests], one_thread).wait())
    print("--- in all")
    for result in results:
        print(result.line())
    for result in results:
        for name in result.failed:
            print(f"FAILED {name}")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
