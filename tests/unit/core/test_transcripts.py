"""Stories of the core as text: every transcript says what the core does now (support/transcripts.py has the format).

`pytest tests/unit/core/test_transcripts.py --rewrite-transcripts` writes what it does into them: review the difference.
"""

import difflib
from pathlib import Path

import pytest
from support.transcripts import rewritten, transcripts

from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.kernel.outcome import Outcome
from apollod.core.state import State

FOLDER = Path(__file__).parent / "transcripts"


@pytest.mark.parametrize("file", transcripts(FOLDER), ids=lambda file: file.stem)
def test_the_core_does_what_its_transcript_says(file: Path, pytestconfig: pytest.Config) -> None:
    said = file.read_text()
    found = rewritten(said)
    if pytestconfig.getoption("--rewrite-transcripts", default=False):
        file.write_text(found)
    elif found != said:
        diff = difflib.unified_diff(said.splitlines(), found.splitlines(), f"{file.name}", "the core", lineterm="", n=6)
        pytest.fail("\n".join(diff), pytrace=False)


def test_what_the_core_decides_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_refreshed(state: State, input_: inp.Input, now_ns: int) -> Outcome:
        events, effects = decide(state, input_, now_ns)
        return Outcome(events, [one for one in effects if not isinstance(one, fx.RefreshEngine)])

    said = (FOLDER / "life.txt").read_text()
    monkeypatch.setattr("support.world.decide", never_refreshed)
    found = rewritten(said)
    assert said.count("-> RefreshEngine") > found.count("-> RefreshEngine") == 0


def test_what_selects_nothing_that_there_is_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no event and no effect begins with"):
        rewritten("> world; up | step.compelted\n")
