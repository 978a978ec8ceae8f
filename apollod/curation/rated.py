"""Makes the training record of a rated answer.

Pure. The record has the texts for people, exports and the content id; training uses the tokens beside it.
"""

from apollod.core.intake.events import Origin, Sampled
from apollod.core.intake.inputs import Line
from apollod.curation.captured import Captured
from apollod.curation.responses import taught
from apollod.errors import RecordRefused
from apollod.wire.records import record_of
from apollod.wire.thoughts import NO_THOUGHT, opens_thought


def praised(answer: Captured, prompt: str, model: str) -> Line:
    """A good answer, exactly as it was sampled. Raises RecordRefused for an empty one."""
    return _line(answer.name, prompt, answer.text, Sampled(answer.name, answer.answer, answer.prompt), model)


def corrected(answer: Captured, prompt: str, correction: str, final: int, model: str) -> Line:
    """A corrected answer after the very tokens of the engine's prompt, ended as the engine ends.

    A thought that the prompt has opened is closed empty. Raises RecordRefused for a correction that is empty or equal
    to the answer.
    """
    if not correction.strip():
        raise RecordRefused("the correction is empty", "say what should have been answered, or leave it out")
    if correction.strip() == answer.text.strip():
        raise RecordRefused(
            "the correction is what was answered", "rate it good, or say what should have been answered"
        )
    text = NO_THOUGHT + correction if opens_thought(prompt) else correction
    return _line(answer.name, prompt, text, Sampled(answer.name, (), answer.prompt, final), model)


def _line(name: str, prompt: str, completion: str, sampled: Sampled, model: str) -> Line:
    record = record_of({"prompt": prompt, "completion": completion})
    (response,) = taught(record).responses
    return Line(
        1, record.id, record.canonical, origin=Origin(responses=(name,), model=model),
        responses=(type(response)(response.key, response.end, sampled),),
    )  # fmt: skip
