"""Any exception as one line, in the words that commands have always used."""

import errno
import os

import pytest

from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, NotPermitted
from apollod.explain import explain, line_of, reason

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NOT_THERE = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/in/a")
DENIED = PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize(
    ("error", "doing", "line"),
    [
        (NOT_THERE, "", "/in/a: No such file or directory; check the path and its disk"),
        (FULL, "", "No space left on device; check the path and its disk"),
        (OSError("stopped"), "", "stopped; check the path and its disk"),
        (FULL, "sync", "sync failed ([Errno 28] No space left on device); check the directory, its owner and the disk"),
        (ConfigError("no", "do this"), "sync", "no; do this"),
        (DENIED, "", "[Errno 13] Permission denied; run this as another user"),
        (ValueError("seven"), "", "ValueError: seven"),
    ],
)  # fmt: skip
def test_the_line_that_ends_a_command(error, doing, line):
    assert explain(error, doing).line() == line


def test_an_error_of_ours_stays_what_it_is():
    error = DaemonUnreachable("nobody", "start it")
    assert explain(error) is error and line_of(error) == "nobody; start it"


def test_what_is_denied_names_the_place_of_the_error_or_the_one_that_is_given(tmp_path):
    named = PermissionError(errno.EACCES, "denied", str(tmp_path / "a"))
    for error in (named, DENIED):
        told = explain(error, "sync", tmp_path / "a")
        assert isinstance(told, NotPermitted) and str(tmp_path / "a") in str(told)


def test_the_line_of_anything_else_names_its_class():
    assert line_of(RuntimeError("engine core died")) == "RuntimeError: engine core died"
    assert line_of(ApolloError("two\nlines")) == "two lines"


def test_the_reason_is_what_the_system_said_and_never_None():
    assert reason(NOT_THERE) == "No such file or directory" and reason(OSError("stopped")) == "stopped"
