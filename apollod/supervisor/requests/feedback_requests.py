"""Requests to rate the engine's answers."""

import anyio.to_thread
from msgspec.structs import replace

from apollod.adapters.answer_store import Answer
from apollod.adapters.journal.examples import states_of
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.events import Sampled
from apollod.curation.lessons.line_lessons import asked_by, lesson_of
from apollod.curation.redaction import redact_text
from apollod.curation.responses import Captured, corrected_line, rated_line
from apollod.errors import RecordRefused
from apollod.supervisor.captures import kept, name_of, question_of
from apollod.supervisor.config import Config
from apollod.supervisor.requests.asked import USAGE, Daemon
from apollod.wire import messages as msg

TURN_ON = 'set `[capture] mode = "feedback"` and restart the daemon; answers from then on can be rated'


async def give_feedback(daemon: Daemon, request: msg.FeedbackRequest) -> msg.Answer:
    """Rate an answer; answered when it is recorded, with the example learned because of it."""
    config = daemon.config
    if config.capture.mode == "off":
        return msg.Failure("answers are not kept, so none can be rated", TURN_ON)
    found = await anyio.to_thread.run_sync(kept, config, request.response)
    answer = _chosen(found, request.response, request.choice, config.capture.keep_s)
    if isinstance(answer, msg.Failure):
        return answer
    correction, comment = redact_text(request.correction or ""), redact_text(request.comment)
    captured = Captured(name_of(answer), tuple(answer.prompt_ids), tuple(answer.answer_ids), answer.answer)
    try:
        line = _line(request, captured, answer, correction, config)
    except RecordRefused as error:
        return msg.Failure(str(error), error.hint, code=USAGE)
    if line is not None:
        line = await anyio.to_thread.run_sync(_with_question, line, config, answer.prompt, correction)
    rated = inp.Rated(
        response=captured.name, rating=request.rating, by=request.by, correction=correction, comment=comment,
        original=Sampled(captured.name, captured.answer, captured.prompt, answer.final), answer=answer.answer,
        weights=answer.version, line=line,
    )  # fmt: skip
    recorded = [one.event for one in await daemon.loop.submit(rated)]
    declined = [e.example for e in recorded if isinstance(e, ev.ExampleDeclined)]
    body = await _told(daemon, captured.name, found)
    return msg.Reply({**body, "recorded": any(isinstance(e, ev.FeedbackGiven) for e in recorded), "declined": declined})


async def feedback_on(daemon: Daemon, request: msg.FeedbackQuestion) -> msg.Answer:
    """The last rating of an answer, also if the answer is no longer kept."""
    found = await anyio.to_thread.run_sync(kept, daemon.config, request.response)
    name = f"{request.response}#{request.choice}" if request.choice else request.response
    body = await _told(daemon, name, found)
    if body["rating"] or found:
        return msg.Reply(body)
    if daemon.config.capture.mode == "off":
        return msg.Failure(f"{name} was not rated, and answers are not kept", TURN_ON)
    return _missing(name, daemon.config.capture.keep_s)


def _chosen(found: list[Answer], response: str, choice: int | None, keep_s: float) -> Answer | msg.Failure:
    if not found:
        return _missing(response, keep_s)
    choices = [one.choice for one in found]
    if choice is None and len(found) > 1:
        return msg.Failure(
            f"{response} has {len(found)} choices", f"say which one: {', '.join(map(str, choices))}", code=USAGE
        )
    answer = next((one for one in found if choice in (None, one.choice)), None)
    return answer or msg.Failure(
        f"{response} has no choice {choice}", f"it has {', '.join(map(str, choices))}", missing=True
    )


def _missing(response: str, keep_s: float) -> msg.Failure:
    return msg.Failure(
        f"no answer {response} is kept",
        "give the `id` of a whole answer of this server; [capture] keep_s and max_bytes bound how long it is known "
        f"({keep_s:g} s at most)",
        missing=True,
    )


def _line(
    request: msg.FeedbackRequest, captured: Captured, answer: Answer, correction: str, config: Config
) -> inp.Line | None:
    """The line to learn because of a rating; None: none. Raises RecordRefused."""
    model, preferences = config.engine.served_name, config.preferences.rules()
    if request.correction is None:
        return rated_line(captured, answer.prompt, request.rating == "good", model, preferences)
    if request.rating == "good":
        raise RecordRefused("a good answer needs no correction", "rate it bad, or leave the correction out")
    return corrected_line(captured, answer.prompt, correction, answer.final, model, preferences)


def _with_question(line: inp.Line, config: Config, prompt: str, correction: str) -> inp.Line:
    """Add the question of a prompt, rendered by the engine, if it is a single one, and the lesson of a correction."""
    question = question_of(config, prompt) if line.responses else ""
    wanted = correction and config.lessons.direct and not line.decided
    return replace(line, lesson=lesson_of(question, correction) if wanted else None, question=asked_by(question))


async def _told(daemon: Daemon, name: str, found: list[Answer]) -> dict[str, object]:
    """The last rating of an answer."""
    earlier = (await daemon.journal.feedback([name])).get(name, [])
    seq, said = earlier[-1] if earlier else (0, None)
    body: dict[str, object] = {
        "schema_version": 1,
        "response_id": name.partition("#")[0],
        "choices": [one.choice for one in found],
        "rating": said.rating if said else None,
        "correction": said.correction if said else "",
        "comment": said.comment if said else "",
        "by": said.by if said else "",
        "example": (said.example or None) if said else None,
        "replaces": (said.replaces or None) if said else None,
        "seq": seq or None,
    }
    if said and said.example:
        states = await anyio.to_thread.run_sync(states_of, daemon.config.journal_path, [said.example])
        body["state"] = states.get(said.example, "")
    return body
