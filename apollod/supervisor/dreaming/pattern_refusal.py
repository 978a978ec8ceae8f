"""Checks a pattern before anything is dreamt: its check, and whether its seeds can be found."""

from apollod.adapters.dreams.checks import problem
from apollod.adapters.dreams.seed_places import place_problem
from apollod.core.dreams.patterns import pattern_problem
from apollod.core.settings import PatternSettings
from apollod.errors import ApolloError, ConfigError
from apollod.supervisor.config import Config


def refused(config: Config) -> ApolloError | None:
    """The reason why the patterns of the configuration cannot be learned; None: they can."""
    for pattern in config.dream.pattern:
        if why := pattern_refused(pattern):
            return ConfigError(f"[[dream.pattern]] {pattern.name}: {why}", "`apollod config check` looks at it again")
    return None


def pattern_refused(pattern: PatternSettings) -> str:
    """The reason why it cannot be learned; empty: it can. Seeds may come later."""
    places = (place_problem(place) for place in pattern.seeds)
    return pattern_problem(pattern) or problem(pattern.check) or next(filter(None, places), "")
