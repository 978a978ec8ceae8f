"""What the daemon says of itself, and a place for it that takes no more."""

import subprocess
import sys

import pytest

LOGS = """
import structlog
from apollod.adapters.system import log
log.configure("info", {format!r})
for number in range(10_000):
    structlog.get_logger().info("said", number=number)
print("alive")
"""


@pytest.mark.parametrize("format", ["json", "console"])
def test_a_full_disk_of_the_log_ends_nobody(format: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", LOGS.format(format=format)], stdout=subprocess.PIPE, stderr=full)
    assert done.stdout == b"alive\n"


def test_what_is_said_is_on_standard_error() -> None:
    command = [sys.executable, "-c", LOGS.format(format="json")]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stderr.count("\n") == 10_000 and '"number": 9999' in done.stderr.splitlines()[-1]
