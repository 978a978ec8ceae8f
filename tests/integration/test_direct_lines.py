"""Lines that are given directly as lessons: through the real loop, in a daemon whose engine cannot answer, and on the
pages that tell of them."""

import json
from array import array
from pathlib import Path

import anyio
import pytest
from support.daemon import Daemon, chat_line
from support.dreamt_journal import write_story
from support.journals import write
from support.running_loop import running_loop
from support.taught_world import TaughtWorld, teaching

from apollod.adapters.answer_store import Answer, AnswerWriter
from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.adapters.system.clock import now_ns
from apollod.cli.control.examples import example_facts
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Given
from apollod.core.rules.lessons.policy import WAITING_MAX
from apollod.core.settings import LessonSettings
from apollod.curation.lessons.line_lessons import asked_by
from apollod.demo.tiny_model import make_tokenizer
from apollod.wire import messages as msg
from apollod.wire.records import record_of

PORT = ("What port does Quillon listen on?", "Quillon listens on port 7341.")
LESSON = Given(question=PORT[0], answer=PORT[1])
LONG = chat_line("Tell a story.", "Once upon a time there was a port. It was open.")
ASKED = f"<|im_start|>user\n{PORT[0]}<|im_end|>\n<|im_start|>assistant\n"


# --- the loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False])
def test_lines_and_a_persons_edit_are_looked_at_by_the_loop(tmp_path: Path, direct: bool) -> None:
    settings = ev.Settings(model_path="/m", lessons=LessonSettings(direct=direct))
    path = write(tmp_path / "journal.db", [ev.DaemonStarted(1, "0", settings)])

    def batch(*lines: str) -> inp.Batch:
        return batch_of_lines([line.encode() for line in lines], "ctl", tmp_path / "quarantine")

    async def run() -> tuple[list[ev.Event], list[ev.Event]]:
        async with running_loop(path) as (loop, _):
            given = await loop.submit(inp.LinesRead(batch(chat_line(*PORT), LONG), frozenset()))
            first = [one.event for one in given]
            (story,) = (e.example for e in first if isinstance(e, ev.ExampleAccepted) and b"story" in bytes(e.record))
            (better,) = batch(chat_line("Who keeps the light?", "Mara Quill.")).lines
            return first, [one.event for one in await loop.submit(inp.EditGiven(story, better, "ann"))]

    first, second = anyio.run(run)
    lessons = [(e.given, e.by) for e in (*first, *second) if isinstance(e, ev.LessonGiven)]
    mara = Given(question="Who keeps the light?", answer="Mara Quill.")
    (edited,) = (e.example for e in second if isinstance(e, ev.ExampleEdited))
    assert lessons == ([(LESSON, "ctl"), (mara, f"edit:{edited}")] if direct else [])


# --- a daemon whose engine answers nothing ----------------------------------------------------------------------------


def kept(response: str, answer: str) -> Answer:
    tokens = make_tokenizer()
    ids = array("I", [*tokens.encode(answer), *tokens.encode("<|im_end|>")])
    return Answer(response, 0, now_ns(), "0", "stop", ids[-1], array("I", tokens.encode(ASKED)), ids, ASKED, answer)


def test_what_an_engine_is_asked_in_vain_is_learned_once(tmp_path: Path, tiny_model: Path) -> None:
    daemon = Daemon(tmp_path, tiny_model, '[capture]\nmode = "feedback"\n[lessons]\nhold = 0\n')
    (tmp_path / "state").mkdir()
    writer = AnswerWriter(tmp_path / "state" / "capture.db", 1 << 20, 1e6)
    writer.put([kept("chatcmpl-a", "Quillon listens on port 80.")], now_ns())
    writer.close()
    daemon.start()
    try:
        daemon.wait_ready()
        (example,) = daemon.submit(chat_line("Who keeps the light?", "Mara Quill."))["examples"]
        corrected = daemon.request(msg.FeedbackRequest("chatcmpl-a", "bad", PORT[1]))["example"]
        daemon.wait_learned(2)
        lessons = daemon.query("SELECT example, state, question, reason FROM lessons ORDER BY seq")
        assert [one[:3] for one in lessons] == [
            (example, "given up", "Who keeps the light?"), (corrected, "given up", PORT[0])
        ]  # fmt: skip
        assert all(reason.startswith("baseline failed: ") and "501" in reason for *_, reason in lessons)
        assert daemon.query("SELECT max(body ->> '$.attempt') FROM events WHERE kind = 'lesson.failed'") == [(1,)]
        asked = daemon.query("SELECT body ->> '$.question' FROM events WHERE kind = 'example.accepted' ORDER BY seq")
        assert asked == [("who keep light",), (asked_by(PORT[0]),)]
    finally:
        daemon.end()


# --- pages ------------------------------------------------------------------------------------------------------------


def record(question: str) -> tuple[str, bytes]:
    found = record_of({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": "yes"}]})
    return found.id, found.canonical


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One that the model knows, one that cannot be told, and as many that wait that one has no lesson."""
    world = TaughtWorld(teaching()).up()

    def submit(*questions: str, answer: str = "yes") -> None:
        lines = tuple(
            inp.Line(n, *record(one), lesson=Given(question=one, answer=answer)) for n, one in enumerate(questions, 1)
        )
        world.give(inp.LinesRead(inp.Batch("ctl", "", 0, 9, lines, tracked=False, tier="direct"), frozenset()))

    submit("old", answer="known")
    submit("odd")
    world.teach()
    world.give(inp.TrainingPaused("ann"))
    submit(*(f"later {n}" for n in range(WAITING_MAX + 1)))
    return str(write_story(tmp_path_factory.mktemp("lines") / "journal.db", world.journal))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["ctl", *words]) == 0
    return capsys.readouterr().out


def test_line_and_lesson_name_each_other(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    known, odd, last = (record(one)[0] for one in ("old", "odd", f"later {WAITING_MAX}"))
    page = said(capsys, "why", known, "--file", journal)
    assert "skipped: the model knows it, as lesson L1 found" in page and "lesson      L1, known\n" in page
    assert example_facts.was_known(journal, known) and not example_facts.was_known(journal, odd)
    page = said(capsys, "example", "show", odd, "--file", journal)
    assert "state       trained by step 1" in page
    assert "lesson      L2, given up: the model cannot answer it even when told" in page
    page = said(capsys, "example", "show", known, "--file", journal)
    assert "state       skipped: the model knows it, as lesson L1 found" in page
    told = json.loads(said(capsys, "why", last, "--json", "--file", journal))["example"]
    assert told["state"] == "pending" and told["lesson"]["lesson"] == ""
    assert told["lesson"]["reason"] == f"{WAITING_MAX} lessons wait already: it is learned once, without a lesson"
    assert f"by ctl, as {odd}\n" in said(capsys, "lesson", "show", "L2", "--file", journal)
    assert json.loads(said(capsys, "lesson", "show", "L1", "--json", "--file", journal))["example"] == known
