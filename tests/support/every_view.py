"""Events that give every view of the journal rows."""

import msgspec
from support.journals import MEASURED, STORY, TAKEN_BACK, A, B, D, E

from apollod.core import events as ev
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Worded, Wording
from apollod.core.facts.lessons.stages import Stage
from apollod.core.settings import PatternSettings

SCORED = ev.ExampleScored(
    example=B, with_context=-1.0, without_context=-2.0, divergence=1.0, tokens=3, weights_version=0
)
DECIDED: list[ev.Event] = [
    ev.ExampleHeld(example=E, tier="bulk", reason="its source is reviewed"),
    ev.VerdictGiven(verdict="good", example=E, votes=("good",)),
    ev.VerdictGiven(verdict="good", case="ab", expected="bad"),
    ev.VerdictFailed(attempt=1, cause="nonsense", reason="this is prose", gives_up=False, example=E),
    ev.ExampleDeclined(example=E, tier="bulk", by="me"),
    ev.FeedbackGiven(response="chatcmpl-1", rating="good", by="http", example=A),
    ev.FeedbackGiven(
        response="chatcmpl-1", rating="bad", by="ctl", correction="so", answer="thus", example=B, replaces=9
    ),
]
DECIDED += [SCORED, msgspec.structs.replace(SCORED, example=D)]
DECIDED += [ev.FollowUpScored(A, "s2", 1.5, 0.5, True, 0)]
ANCHORS: list[ev.Event] = [
    *(
        ev.AnchorFrozen(
            name, msgspec.Raw(b'{"messages":[{"role":"user","content":"Why?"},{"role":"assistant","content":"So."}]}'),
            "t", "general", f"shipped:{n}", weights_version=0,
        )
        for n, name in enumerate(("a1", "a2"), 1)
    ),
    ev.AnchorEncoded("a1", tokens=12, targets=4, digest="d"),
    ev.AnchorsRetired(("a2",), "it is too long"),
]  # fmt: skip
DREAMT: list[ev.Event] = [
    ev.PatternAdded(PatternSettings("ask", "Ask first.", held_out=1), "config"),
    ev.DreamRequested("d7", "ask", "practice"),
    ev.DreamFailed("d7", "imagining", 1, "nonsense", "this is prose"),
    ev.DreamTested("d7", "ask", "bare", True, "Shall I?", "judge"),
    ev.DreamAbandoned("d7", "nobody answers"),
]
WORDED = Worded(
    "Where?", "there", "where", (Wording("So, where?", "there", "f1"),), (Wording("Where is it?", "there", "f2"),)
)
TAUGHT: list[ev.Event] = [
    ev.LessonGiven("L1", Given("It is there.", document="NOTES.md"), "me"),
    ev.LessonBegun("L1", Stage.WORDING, "given"),
    ev.LessonWorded("L1", "Fact: it is there.", WORDED),
    ev.LessonAsked("L1", Stage.BASELINE, "bare", 1, (ev.Said(0, "Here.", False),), 0),
    ev.LessonAsked("L1", Stage.TOLD, "told", 1, (ev.Said(0, "There.", True),), 0),
    ev.LessonPractised("L1", 0, A, 1),
    ev.LessonAsked("L1", Stage.TESTING, "bare", 2, (ev.Said(0, "There.", True), ev.Said(0, "There!", True, 7)), 1),
    ev.LessonGivenUp("L1", "apollod", "no more", {"bare": (0, 1), "told": (1, 1)}, (1, 1), 1, 0.01, 2.0),
]
RESCORED = ev.ExamplesRescored(1, 6, (ev.Rescored(A, 6, 2.0, 1.9, 4),), 0.1)
MORE: list[ev.Event] = [
    RESCORED,
    ev.SourceBlocked(path="/in/b", reason="it is a link", hint="copy it", mode="inbox", place="/in"),
    ev.SignalFlagged("s1", "correction", "correction", 0.8, A, "src", 2, "s", ("u1", "u2"), "use pnpm", "k"),
    ev.BootstrapRequested(path="/old", by="p", models=("*",)),
    *MEASURED,
    ev.GroupSampled("sums", 1, A, (1.0, 0.0), 3, 4, 60, 0.5, 0.1),
    ev.UpdateOpened(1, "vllm", "trl", 6, "f"),
    ev.UpdateReceived(1, "gloo", "d" * 64, "n", 3, 300, 0.5),
    ev.UpdateUndone(1, "its trainer died", "f"),
    ev.UpdateOpened(2, "sglang", "torchrl", 6, "f"),
    ev.UpdateReceived(2, "gloo", "e" * 64, "n", 3, 300, 0.5),
    ev.UpdateCommitted(2, 7, 6, "theirs", A, "g", 3, 300, "n", 0.1, "payload", ("e" * 64,)),
    ev.GroupSampled("sums", 2, "", (0.0, 0.0), 4, 4, 40, 0.5, 0.1, reason="all 2 answers have the score 0"),
    ev.WeightsSent(7, "http://10.0.0.2:8000", "disk", "g", 300, 2.0, 0.5),
    ev.WeightsSent(8, "http://10.0.0.2:8000", "disk", "h", 300, 1.0, 0.0, "it is not reachable"),
    ev.WeightsSent(9, "http://10.0.0.2:8000", "lora", "i", 30, 1.0, 0.0, "", 0.9, 2),
]
EVERY_VIEW: list[ev.Event] = [*STORY, *TAKEN_BACK, *DECIDED, *DREAMT, *ANCHORS, *TAUGHT, *MORE]
