"""Maps requests to their handlers."""

from collections.abc import Awaitable, Callable
from typing import Any

from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.bootstrap_request import bootstrap, stop_bootstrap
from apollod.supervisor.requests.checkpoint_request import checkpoint
from apollod.supervisor.requests.document_request import forget_document, teach_document
from apollod.supervisor.requests.dream_request import start_dreams, stop_dreams
from apollod.supervisor.requests.feedback_request import feedback_on, give_feedback
from apollod.supervisor.requests.forget_request import forget
from apollod.supervisor.requests.lesson_request import forget_lesson, lesson, lessons, practise_lesson, teach
from apollod.supervisor.requests.pattern_request import add_pattern, patterns, retire_pattern
from apollod.supervisor.requests.quality_request import measure_quality
from apollod.supervisor.requests.queue_request import queue
from apollod.supervisor.requests.review_request import decide, edit
from apollod.supervisor.requests.rollback_request import relearn, rollback
from apollod.supervisor.requests.status_request import status
from apollod.supervisor.requests.submit_request import submit
from apollod.supervisor.requests.training_request import pause, resume
from apollod.supervisor.requests.withdraw_request import withdraw
from apollod.wire import messages as msg

Handler = Callable[[Daemon, Any], Awaitable[msg.Answer]]

HANDLERS: dict[type[Any], Handler] = {
    msg.StatusRequest: status,
    msg.SubmitRequest: submit,
    msg.CheckpointRequest: checkpoint,
    msg.PauseRequest: pause,
    msg.ResumeRequest: resume,
    msg.RollbackRequest: rollback,
    msg.RelearnRequest: relearn,
    msg.WithdrawRequest: withdraw,
    msg.ForgetRequest: forget,
    msg.FeedbackRequest: give_feedback,
    msg.FeedbackQuestion: feedback_on,
    msg.DecideRequest: decide,
    msg.EditRequest: edit,
    msg.BootstrapRequest: bootstrap,
    msg.BootstrapStopRequest: stop_bootstrap,
    msg.QueueRequest: queue,
    msg.PatternsRequest: patterns,
    msg.PatternAddRequest: add_pattern,
    msg.PatternRetireRequest: retire_pattern,
    msg.DreamStartRequest: start_dreams,
    msg.DreamStopRequest: stop_dreams,
    msg.TeachRequest: teach,
    msg.LessonQuestion: lesson,
    msg.LessonsRequest: lessons,
    msg.LessonPractiseRequest: practise_lesson,
    msg.LessonForgetRequest: forget_lesson,
    msg.TeachDocumentRequest: teach_document,
    msg.DocumentForgetRequest: forget_document,
    msg.QualityRequest: measure_quality,
}

AT_ONCE = (msg.StatusRequest, msg.QueueRequest, msg.PatternsRequest, msg.LessonsRequest, msg.LessonQuestion)
"""requests answered from the state, without waiting"""
