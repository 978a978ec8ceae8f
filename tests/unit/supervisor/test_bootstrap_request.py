"""What is recorded of a wish to bootstrap."""

from apollod.core.settings import PatternSettings
from apollod.supervisor.bootstrapping import terms_of
from apollod.supervisor.config import load_config
from apollod.supervisor.requests.bootstrap_request import wanted_of
from apollod.wire import messages as msg


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
