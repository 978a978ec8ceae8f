"""The few questions asked over HTTP: does the engine answer, is its port free, how probable are these tokens?"""

import errno
import http.client
import json
import socket
from collections.abc import Sequence
from functools import partial

import anyio

from apollod.errors import EngineError

HEALTH_TIMEOUT_S = 5.0
SCORE_TIMEOUT_S = 60.0


async def healthy(host: str, port: int) -> bool:
    """GET /health: 200 only once the engine core is up (vLLM entrypoints/serve health route)."""
    try:
        with anyio.fail_after(HEALTH_TIMEOUT_S):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                return (await stream.receive(64)).split(b" ")[1:2] == [b"200"]
    except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
        return False


def port_in_use(host: str, port: int) -> bool:
    """Would the engine fail to listen there?"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


async def prompt_logprobs(host: str, port: int, api_key: str, model: str, ids: Sequence[int]) -> tuple[float, ...]:
    """Log-probabilities of ids 1.. by the engine, from one prefill that reads no cached prefix. Raises EngineError."""
    work = partial(_score, host, port, api_key, model, list(ids))
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def _score(host: str, port: int, api_key: str, model: str, ids: list[int]) -> tuple[float, ...]:
    # With `prompt_logprobs` vLLM sets skip_reading_prefix_cache itself (sampling_params.py, 0.26 to 0.32).
    body = {"model": model, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 1.0}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
    connection = http.client.HTTPConnection(host, port, timeout=SCORE_TIMEOUT_S)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise EngineError(f"the engine answered {answer.status} to {len(ids)} tokens: {text[:300]!r}")
        given = json.loads(text)["choices"][0]["prompt_logprobs"]
        return tuple(float(each[str(token)]["logprob"]) for token, each in zip(ids[1:], given[1:], strict=True))
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        raise EngineError(f"the engine did not score {len(ids)} tokens ({type(error).__name__}: {error})") from error
    finally:
        connection.close()
