"""Our own engine as a model to ask."""

from apollod.adapters.llm.endpoint import Endpoint
from apollod.supervisor.config import Config

SCORE_S = 60.0  # of a question about log-probabilities: on a busy server it waits for its turn


def own_endpoint(config: Config, limit_s: float = SCORE_S) -> Endpoint:
    """Asked once: whoever asks again is the core."""
    engine = config.engine
    return Endpoint(
        config.api_url, engine.served_name, engine.api_key, attempts=1, try_s=limit_s, total_s=limit_s, ours=True
    )
