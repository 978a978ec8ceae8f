"""Refusals of a trainer's call, by what a dialect answers."""

from apollod.errors import ApolloError


class BadCall(ApolloError):
    """A body or an argument that cannot be used: status 400 in both dialects."""


class NotServed(ApolloError):
    """A route that exists and is not served: status 501."""


class UpdateRefused(ApolloError):
    """A call out of order, or what the supervisor refused: status 500 in vLLM's dialect, 400 in SGLang's."""
