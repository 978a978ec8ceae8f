"""What the supervisor makes of captured answers, and what it says where there are none."""

import time
from array import array
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from apollod.adapters import answer_store
from apollod.adapters.answer_store import Answer, AnswerWriter
from apollod.adapters.system import clock
from apollod.core.inputs import Batch
from apollod.supervisor import captures
from apollod.supervisor.child_commands import engine_environment
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.feedback_requests import feedback_on, give_feedback
from apollod.wire import messages as msg
from apollod.wire.engine_terms import CaptureTerms, capture_terms


def config_of(root: Path, mode: str, *more: str) -> Config:
    return load_config(None, ["model.path=/m", f"state.dir={root}", f"capture.mode={mode}", *more], {})


class Quiet:
    """A journal that knows of no rating."""

    async def feedback(self, names: list[str]) -> dict[str, Any]:
        return {}


def ask(config: Config, request: msg.FeedbackRequest | msg.FeedbackQuestion) -> msg.Answer:
    daemon = cast(Daemon, Daemon(config, *[cast(Any, Quiet())] * 6))
    handler: Any = give_feedback if isinstance(request, msg.FeedbackRequest) else feedback_on

    async def main() -> msg.Answer:
        return cast(msg.Answer, await handler(daemon, request))

    return anyio.run(main)


def keep(config: Config, *names: tuple[str, int]) -> None:
    writer = AnswerWriter(config.capture_path, 1 << 20, 1e9)
    ids = array("I", [1, 2])
    writer.put([Answer(name, n, clock.now_ns(), "", "stop", 2, ids, ids, "asked", "said") for name, n in names], 0)
    writer.close()


@pytest.mark.parametrize("request_", [msg.FeedbackRequest("r", "good"), msg.FeedbackQuestion("r")])
def test_where_capture_is_off_it_says_how_to_switch_it_on(
    tmp_path: Path, request_: msg.FeedbackRequest | msg.FeedbackQuestion
) -> None:
    told = ask(config_of(tmp_path, "off"), request_)
    assert isinstance(told, msg.Failure) and "[capture] mode" in told.hint
    assert (told.code, told.missing, told.retryable) == (1, False, False), "409 over HTTP"


def test_an_answer_that_is_not_kept_any_more_is_not_there(tmp_path: Path) -> None:
    config = config_of(tmp_path, "feedback", "capture.keep_s=0.001")
    keep(config, ("r", 0))
    time.sleep(0.05)  # it is kept for 0.001 s, which a fast machine does not need until it asks
    for request in (msg.FeedbackRequest("r", "good"), msg.FeedbackQuestion("r"), msg.FeedbackQuestion("foreign")):
        told = ask(config, request)
        assert isinstance(told, msg.Failure) and told.missing and told.hint


def test_one_of_several_choices_has_to_be_named(tmp_path: Path) -> None:
    config = config_of(tmp_path, "feedback")
    keep(config, ("r", 0), ("r", 1))
    told = ask(config, msg.FeedbackRequest("r", "good"))
    assert isinstance(told, msg.Failure) and told.code == 2 and "0, 1" in told.hint
    told = ask(config, msg.FeedbackQuestion("r"))
    assert isinstance(told, msg.Reply) and told.body["choices"] == [0, 1]


def test_the_engine_is_told_what_to_keep_and_what_is_off_is_forgotten(tmp_path: Path) -> None:
    config = config_of(tmp_path, "feedback", "capture.max_bytes=70000")
    terms = capture_terms(engine_environment(config))
    assert terms == CaptureTerms(str(tmp_path / "capture.db"), 70000, 86400.0)
    assert capture_terms(engine_environment(config_of(tmp_path, "off"))) is None
    personal = capture_terms(engine_environment(config_of(tmp_path, "feedback", "redaction.personal=true")))
    assert personal is not None and personal.personal
    keep(config, ("r", 0))
    captures.forget_if_off(config)
    assert answer_store.count(config.capture_path) == 1
    captures.forget_if_off(config_of(tmp_path, "off"))
    assert not list(tmp_path.glob("capture.db*"))


def test_only_mode_all_joins_logs(tmp_path: Path) -> None:
    def read(path: str, positions: Any) -> Batch | None:
        return None

    assert captures.joining(config_of(tmp_path, "feedback"), read) is read
    assert captures.joining(config_of(tmp_path, "all"), read) is not read
