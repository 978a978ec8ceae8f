"""torchrl's `SGLangWeightSyncScheme` against a served model: what it sends is what is served, bit by bit."""

from pathlib import Path

import pytest
from support.foreign_clients import answer_of, needs

pytestmark = [pytest.mark.engine, needs("torchrl")]

VERSIONS, PLANTED = 6, 4


def test_five_versions_are_served_bit_by_bit_and_a_nan_between_them_changes_nothing(served, tmp_path: Path) -> None:
    daemon = served.daemon
    asked = (daemon.url, str(daemon.model), str(VERSIONS), str(PLANTED))
    answer = answer_of("torchrl_sender", *asked, directory=tmp_path)
    told = answer["versions"]
    before = None
    for number, one in enumerate(told, 1):
        if number == PLANTED:
            assert "400" in one["error"] and one["served"]["fingerprint"] == before, one
        else:
            assert one["error"] == "" and one["served"]["fingerprint"] == one["sent"], (number, one)
        before = one["served"]["fingerprint"]
    assert len({one["sent"] for one in told}) == len(told) == VERSIONS
    assert daemon.status()["weights"]["fingerprint"] == told[-1]["sent"] and answer["flushed"]


def test_files_that_it_writes_over_those_of_before_are_served_when_it_says_so(served, tmp_path: Path) -> None:
    asked = (served.daemon.url, str(served.daemon.model), str(served.outside / "buffer"), "3")
    told = answer_of("torchrl_double_buffer", *asked, directory=tmp_path)
    assert [one["served"]["fingerprint"] for one in told] == [one["sent"] for one in told]
    assert len({one["sent"] for one in told}) == 3
