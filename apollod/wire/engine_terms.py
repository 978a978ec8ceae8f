"""Terms between engine and supervisor besides the socket's messages: the settings of capture, in the engine's
environment; the mark of the daemon's own requests, the sampling of rollouts, and the engine's counts of users'
requests."""

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

CAPTURE_VARIABLE = "APOLLOD_CAPTURE"
"""Environment variable: `CaptureTerms` as JSON; if unset, nothing is kept."""

OURS = "x-apollod-daemon"
"""header of all requests of the daemon to its own engine; any value"""
BEGUN = "apollod_user_requests_begun_total"
ENDED = "apollod_user_requests_ended_total"
NEXT_USER = "/apollod/users/next"
"""GET, `within_s` in its query: answers {"came": true} when a user's request comes, {"came": false} after that time"""
GENERATE = "/generate"
SCORE = "/score"
"""POST, for environments that sample by themselves"""
ROLLOUT_PRIORITY = 20
"""vLLM's priority for what no user waits for: rollouts and dreams; users' requests have 0 and are served first"""

PLAIN: Mapping[str, Any] = {
    "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip
"""Samples from the distribution whose log-probabilities the engine gives, whatever generation_config.json says."""


class CaptureTerms(msgspec.Struct, frozen=True):
    """Answers are kept in the file `path`, which takes at most `max_bytes` of disk; none longer than `keep_s` seconds.
    `personal`: personal data is removed as well."""

    path: str
    max_bytes: int
    keep_s: float
    personal: bool = False


RECEIVERS_VARIABLE = "APOLLOD_RECEIVERS"
"""Environment variable of the gateway: `SendTerms` as JSON."""

Dialect = Literal["vllm", "sglang"]
SentBy = Literal["disk", "memmap", "gloo", "tensor", "nccl", "restart", "lora"]
"""bridges to engines elsewhere"""


class ReceiverTerms(msgspec.Struct, frozen=True):
    """An engine elsewhere: its URL without /v1, the words of its routes for weights, its name of the model (empty: ask
    it), its key, and the directory in which it finds what lies in `SendTerms.directory` (empty: the same)."""

    url: str
    dialect: Dialect = "vllm"
    model: str = ""
    api_key: str = ""
    directory: str = ""


class SendTerms(msgspec.Struct, frozen=True):
    """The way of weights to engines elsewhere. `directory`: where versions are written; `command`: restarts an engine
    (bridges `restart`, `lora`); `timeout_s`: longest wait for one answer. Bridge `lora`: the `rank` of an adapter; the
    model directory that the engines have loaded, as it was given (`base`) or where the weights before the first step
    are kept (`kept`). `gpu`: the trainer's memory is on the first GPU of this machine."""

    bridge: SentBy
    receivers: tuple[ReceiverTerms, ...]
    directory: str
    command: tuple[str, ...] = ()
    timeout_s: float = 600.0
    rank: int = 64
    base: str = ""
    kept: str = ""
    gpu: bool = False


def capture_terms(environ: Mapping[str, str] = os.environ) -> CaptureTerms | None:
    """The terms in this environment; None if nothing is to be kept."""
    given = environ.get(CAPTURE_VARIABLE)
    return msgspec.json.decode(given, type=CaptureTerms) if given else None
