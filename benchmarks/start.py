"""Measures how long it takes until the supervisor answers, and a cold `ctl status`.

The supervisor is started on an empty state directory; its children are not waited for. `ctl status`, as an object and
as a page, is a whole process from exec to exit, in turns with a bare `python -c pass` of the same interpreter.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.daemon import Daemon, build_model

ROUNDS = 15


def main() -> None:
    """Measure and print."""
    args = report.parser(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        root = Path(directory)
        model = build_model(root / "model", "random")
        daemon = Daemon(root, model)
        began = time.perf_counter()
        daemon.start()
        daemon.wait(lambda s: True, "to answer", poll_s=0.005)
        start_s = time.perf_counter() - began
        daemon.wait_ready()
        ready_s = time.perf_counter() - began
        ask = [sys.executable, "-m", "apollod", "ctl", "status", "--socket", str(daemon.socket)]
        status, page, bare = [], [], []
        for _ in range(ROUNDS):
            status.append(_timed([*ask, "--json"]))
            page.append(_timed(ask))
            bare.append(_timed([sys.executable, "-c", "pass"]))
        daemon.stop()
    cold = report.median(status)
    ratio, page_ratio = cold / report.median(bare), report.median(page) / report.median(bare)
    report.report(
        "start",
        {
            "supervisor_answers_s": start_s,
            "serving_and_training_ready_s": ready_s,
            "ctl_status_s": cold,
            "ctl_status_page_s": report.median(page),
            "ctl_status_p90_s": report.percentile(status, 0.9),
            "python_bare_s": report.median(bare),
        },
        {"ctl_status_to_bare_python": ratio, "ctl_status_page_to_bare_python": page_ratio},
        {
            "ctl_status_cold_s": report.goal(cold, 0.150, True),
            "ctl_status_to_bare_python": report.goal(ratio, 5.0, True),
            "ctl_status_page_to_bare_python": report.goal(page_ratio, 5.0, True),
            "supervisor_answers_s": report.goal(start_s, 1.0, True),
        },
        threads=1,
        as_json=args.json,
    )


def _timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
