"""Refusals of a trainer's call, by what a dialect answers."""

from typing import NoReturn

from apollod.errors import ApolloError


class BadCall(ApolloError):
    """A body or an argument that cannot be used: status 400 in both dialects."""


class NotServed(ApolloError):
    """A route that exists and is not served: status 501."""


class TooManyCalls(ApolloError):
    """More calls in a minute than are taken: status 429 in both dialects."""


class UpdateRefused(ApolloError):
    """A call out of order, or what the supervisor refused: status 500 in vLLM's dialect, 400 in SGLang's."""


def refuse_checker(action: str) -> NoReturn:
    """Refuse a call of the weight checker, which both dialects have: a reset is a BadCall, checksums are NotServed."""
    if action.startswith("reset"):
        raise BadCall(
            f"`{action}` would set weights to zero, and they are shared with the trainer of this daemon",
            "use `apollod ctl rollback` to take steps back",
        )
    raise NotServed(
        "checksums of the weights are not told over HTTP",
        "GET /apollod/status has `weights.fingerprint`, which covers all of them",
    )
