"""Our own engine as an endpoint."""

from apollod.adapters.llm.endpoint import Endpoint
from apollod.supervisor.config import Config

SHARE = 0.05
"""largest share of the time in which the engine computes scores"""
SCORE_S = 60.0  # for a question about log-probabilities, which waits for its turn on a busy server


def own_endpoint(config: Config, limit_s: float = SCORE_S) -> Endpoint:
    """One attempt: retries are the core's decision."""
    engine = config.engine
    return Endpoint(
        config.api_url, engine.served_name, engine.api_key, attempts=1, try_s=limit_s, total_s=limit_s, ours=True
    )
