"""A line and its lesson, with evidence against it (transcripts/direct_lines.txt has the rest)."""

from support.taught_world import TaughtWorld, teaching

from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Evidence
from apollod.core.inputs import Batch, Line


def test_evidence_against_a_line_ends_its_lesson() -> None:
    world = TaughtWorld(teaching()).up()
    world.submit("who", response="k")
    world.ask_until("baseline")
    said = Evidence("complaint", "bad", 1.0, "k")
    batch = Batch("log", "/log", 10, 1, (Line(1, evidence=(said,)),), learn="unrejected")
    world.give(inp.LinesRead(batch, frozenset(), responses={"k": "who yes"}))
    world.teach()
    assert world.states() == {"L1": "given up"} and not world.kinds().count("step.completed")
