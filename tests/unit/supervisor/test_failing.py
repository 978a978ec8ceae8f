"""What is recorded of a question that had no usable answer."""

import pytest

from apollod.errors import DreamCheckFailed, DreamNonsense, LlmRefused, SeedsUnreadable, VerdictNonsense
from apollod.supervisor.executor.failing import REASON_MAX, failure_of

SECRET = "sk-ant-api03-" + "aB3dE6gH9" * 11


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (DreamNonsense(f"it begins with {SECRET}"), "nonsense"),
        (VerdictNonsense(f"the quote {SECRET} is not in what was judged"), "nonsense"),
        (LlmRefused("http://e", 400, f"what is {SECRET}?"), "refused"),
        (LlmRefused("http://e", 500, f"what is {SECRET}?"), "endpoint"),
        (DreamCheckFailed(f"check ended with 2: {SECRET}"), "check"),
        (SeedsUnreadable(f"there is no seed in {SECRET}"), "seeds"),
        (OSError(5, f"{SECRET} is gone"), "endpoint"),
        (KeyError(SECRET), "nonsense"),
    ],
)
def test_no_secret_is_in_what_is_recorded_of_a_failure(error: Exception, cause: str) -> None:
    found = failure_of(error)
    assert found.cause == cause and "aB3dE6gH9" not in found.reason and "[redacted " in found.reason


def test_a_bug_is_told_by_its_class_in_one_line_that_is_bounded() -> None:
    assert failure_of(ValueError("no\nsuch thing")).reason == "ValueError: no such thing"
    assert len(failure_of(ValueError("x" * 1_000_000)).reason) == REASON_MAX
