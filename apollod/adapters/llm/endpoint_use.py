"""What this daemon asks of an endpoint, counted as vLLM counts requests: one for each answer that is sampled, so that
a request for `n` of them is n."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Counts(NamedTuple):
    """Requests since the start."""

    asked: int = 0
    answered: int = 0
    refused: int = 0
    """by the HTTP server: the model never saw them"""
    lost: int = 0
    """given up, broken off, or failed: nobody knows whether the model had finished them"""

    @property
    def in_flight(self) -> int:
        return self.asked - self.answered - self.refused - self.lost


class EndpointUse:
    """Counts what all clients of one endpoint ask there."""

    def __init__(self) -> None:
        self.counts = Counts()

    def began(self, body: Mapping[str, Any]) -> int:
        """A request with this body is sent; how many it is to vLLM."""
        requests = int(body.get("n") or 1)
        self.counts = self.counts._replace(asked=self.counts.asked + requests)
        return requests

    def ended(self, requests: int, status: int | None) -> None:
        """With this HTTP status; None: without any."""
        if status is None or status >= 500:
            self.counts = self.counts._replace(lost=self.counts.lost + requests)
        elif status == 200:
            self.counts = self.counts._replace(answered=self.counts.answered + requests)
        else:
            self.counts = self.counts._replace(refused=self.counts.refused + requests)
