"""What the daemon's log says of an event, and how loudly."""

from structlog.testing import capture_logs

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.state import State
from apollod.supervisor.narrate import narrate


def test_a_chat_template_that_spoils_conversations_is_warned_of_once_for_each_binding() -> None:
    for problem, level in (("", "info"), ("conversations do not teach when to stop", "warning")):
        bound = inp.Bound(fingerprint="0" * 16, parameters=1, elements=1, versions={}, template=problem)
        (event,) = [e for e in decide(State(), bound, 0).events if isinstance(e, ev.TrainerBound)]
        with capture_logs() as said:
            narrate(event)
        assert [(line["log_level"], line["template"]) for line in said] == [(level, problem)]
