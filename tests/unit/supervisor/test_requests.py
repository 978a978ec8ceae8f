"""Every request of the control socket is answered."""

from typing import get_args

from apollod.supervisor.requests.handlers import HANDLERS
from apollod.wire import messages as msg


def test_every_request_has_a_handler_and_no_handler_is_of_anything_else():
    without = set(get_args(msg.Request)) - set(HANDLERS)
    assert not without, f"no handler in supervisor/requests answers {sorted(kind.__name__ for kind in without)}"
    assert set(HANDLERS) <= set(get_args(msg.Request))


def test_every_request_can_be_sent():
    assert set(get_args(msg.Request)) <= set(get_args(msg.ToSupervisor))


def test_a_handler_takes_the_request_under_which_it_stands():
    taken = {kind: handler.__annotations__["request"] for kind, handler in HANDLERS.items()}
    assert taken == {kind: kind for kind in HANDLERS}
