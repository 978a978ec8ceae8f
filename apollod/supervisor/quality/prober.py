"""Asks the probes of the configuration: those that come with apollod, and those of a person's files."""

from importlib.resources import files
from pathlib import Path

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.endpoint_use import EndpointUse
from apollod.adapters.llm.probing import Terms, check_schemas, measure
from apollod.core.quality.inputs import ProbesAnswered
from apollod.curation.probes.measured import by_metric
from apollod.curation.probes.probe_lines import Probe, digest, probe_set, read_probes
from apollod.errors import ConfigError, RecordRefused
from apollod.supervisor.child_commands import serves_by_priority
from apollod.supervisor.config import Config
from apollod.supervisor.quality.probe_files import lines_of

SHIPPED = "probes.jsonl"
SHIPPED_PLACE = f"apollod/data/{SHIPPED}"
"""as messages name it"""
OWN_PRIORITY = 15
"""at our own engine: after users (0) and judge (10), before dreams (20)"""
AT_ONCE = 4
REQUEST_S = 120.0


def probes_of(config: Config) -> tuple[Probe, ...]:
    """All that is asked. Raises ConfigError for files that cannot be used. Blocking."""
    shipped = (files("apollod") / "data" / SHIPPED).read_bytes()
    found = read_probes(shipped.splitlines(), SHIPPED_PLACE)
    names = config.quality.probe
    try:
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ConfigError(f"[quality] probe names {name} twice", "name it once")
            own = read_probes(lines_of(name), str(Path(name).expanduser()))
            if not own:
                raise ConfigError(f"[quality] probe {name} has no probe in it", "write one, or do not name the file")
            found += own
        probes = probe_set(found)
        check_schemas(probes)
    except RecordRefused as error:
        raise ConfigError(f"[quality] probe: {error}", error.hint) from error
    return probes


def is_shipped(probe: Probe) -> bool:
    """Does it come with apollod?"""
    return probe.place.rpartition(":")[0] == SHIPPED_PLACE


class Prober:
    """Asks all probes, once; whoever asks again is the core."""

    def __init__(self, config: Config, own: EndpointUse) -> None:
        """`own`: counts what we ask of our own engine."""
        engine = config.engine
        self._endpoint = Endpoint(
            config.api_url, engine.served_name, engine.api_key, AT_ONCE, attempts=1, try_s=REQUEST_S,
            total_s=REQUEST_S, use=own,
        )  # fmt: skip
        self._terms = Terms(concurrency=AT_ONCE, priority=OWN_PRIORITY if serves_by_priority(config) else None)

    async def ask(self, number: int, probes: tuple[Probe, ...]) -> ProbesAnswered:
        """A whole run. Raises ProbesBroken for an endpoint that goes away."""
        async with HttpLlm(self._endpoint) as llm:
            found = await measure(llm, probes, self._terms)
        return ProbesAnswered(
            number, digest(probes), by_metric(found.figures), found.first_version, found.last_version,
            found.prompt_tokens + found.completion_tokens, found.seconds,
        )  # fmt: skip
