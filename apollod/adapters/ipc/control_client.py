"""Sends one request to a running daemon over its control socket, for `apollod ctl`, the demo, benchmarks and tests.

The status alone is fetched faster by `status_client`.
"""

from typing import Any

import msgspec

from apollod.adapters.ipc.channel import Channel
from apollod.adapters.ipc.connecting import connect
from apollod.errors import ConfigError, refusal
from apollod.wire.control_messages import Answer, Failure

TIMEOUT_S = 10.0
_ANSWERS: "msgspec.msgpack.Decoder[Answer]" = msgspec.msgpack.Decoder(Answer)


def ask(path: str, request: msgspec.Struct, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return the body of the daemon's reply to one request. Raises DaemonUnreachable if none answers at `path`; a
    refusal as the error that ends a command with the daemon's exit code, in the daemon's words."""
    channel = Channel(connect(path, timeout_s), _ANSWERS, "the supervisor")
    try:
        channel.send(request)
        answer = channel.receive()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{error.object!r} is not text that UTF-8 can hold", "give it in UTF-8") from error
    finally:
        channel.close()
    if isinstance(answer, Failure):
        raise refusal(answer.code, answer.error, answer.hint)
    return dict(answer.body)
