"""Stories of the core as text: every transcript says what the core does now (support/transcripts.py has the format).

`pytest tests/unit/core/test_transcripts.py --rewrite-transcripts` writes what it does into them: review the difference.
"""

import difflib
from pathlib import Path

import pytest
from support.transcripts import rewritten, transcripts

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
