"""Checks a pattern before anything is dreamt: its check and the places of its seeds."""

from apollod.adapters.checks import problem
from apollod.adapters.seed_places import place_problem
from apollod.core.dreams.patterns import pattern_problem
from apollod.core.settings import PatternSettings
from apollod.errors import ApolloError, ConfigError
from apollod.supervisor.config import Config


def refused(config: Config) -> ApolloError | None:
    """Error of the first configured pattern that cannot be learned; None: none."""
    for pattern in config.dream.pattern:
        if why := pattern_refused(pattern):
            return ConfigError(f"[[dream.pattern]] {pattern.name}: {why}", "`apollod config check` looks at it again")
    return None


def pattern_refused(pattern: PatternSettings) -> str:
    """Reason why it cannot be learned; empty: it can. Seeds may appear later."""
    places = (place_problem(place) for place in pattern.seeds)
    return pattern_problem(pattern) or problem(pattern.check) or next(filter(None, places), "")
