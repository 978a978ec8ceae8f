"""Every request of the control socket is answered; and the event that a request to bootstrap becomes."""

from typing import get_args

from apollod.core.settings import PatternSettings
from apollod.supervisor.bootstrapping import terms_of
from apollod.supervisor.config import load_config
from apollod.supervisor.control import HANDLERS, SUBJECTS, handlers_of
from apollod.supervisor.requests.bootstrap_requests import wanted_of
from apollod.wire import messages as msg


def test_every_request_has_a_handler_and_no_handler_is_of_anything_else():
    without = set(get_args(msg.Request)) - set(HANDLERS)
    assert not without, f"no handler in supervisor/requests answers {sorted(kind.__name__ for kind in without)}"
    assert set(HANDLERS) <= set(get_args(msg.Request))


def test_every_request_can_be_sent():
    assert set(get_args(msg.Request)) <= set(get_args(msg.ToSupervisor))


def test_no_request_has_two_handlers():
    every = {handler for subject in SUBJECTS for _, handler in handlers_of(subject)}
    assert every == set(HANDLERS.values())


def test_a_pattern_brings_its_instruction_and_its_surroundings() -> None:
    config = load_config(None, ["model.path=/m"], {})
    request = msg.BootstrapRequest("/logs", pattern="greet", models=["*"])
    pattern = PatternSettings("greet", "Greet first.", surroundings=("agent",))
    own, section = wanted_of(config, request, pattern), wanted_of(config, request, PatternSettings("greet", "Greet."))
    assert (own.instruction, own.surroundings) == ("Greet first.", ("agent",))
    assert section.surroundings == ("none", "neutral", "agent", "own") == config.dream.surroundings
    assert terms_of(config, own).rules.surroundings == ("agent",)
    without = wanted_of(config, request, None)
    assert (without.instruction, without.surroundings) == ("", ())
