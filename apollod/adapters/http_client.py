"""The HTTP client: requests to models, and alarms by POST. The one module that imports httpx2, which takes a tenth of a
second; it is imported with the first request or alarm."""

from collections.abc import Mapping

import anyio
import httpx2

from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.system.web_address import origin
from apollod.errors import LlmNonsense, LlmUnreachable
from apollod.wire.engine_terms import OURS

HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "apollod"}


class Transport:
    """Connections to one endpoint. The caller sets time limits, except for connecting."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        headers = dict(HEADERS)
        if endpoint.ours:
            headers[OURS] = "1"
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(None, connect=endpoint.connect_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=endpoint.concurrency),
            trust_env=endpoint.use_environment,
            verify=endpoint.base_url.startswith("https:"),  # otherwise the system's certificates are read for nothing
        )

    async def ask(self, url: str, content: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        """POST, or GET without content. Return status, headers (names in any case) and body.

        Raises LlmUnreachable, and LlmNonsense for a body that is too long.
        """
        e = self._endpoint
        body = bytearray()
        try:
            async with self._client.stream("GET" if content is None else "POST", url, content=content) as response:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > e.answer_bytes_max:
                        raise LlmNonsense(f"the answer of {e.base_url} is longer than {e.answer_bytes_max} bytes")
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            what = e.without_key(str(error)) or "the connection broke"
            raise LlmUnreachable(f"{e.base_url} did not answer ({type(error).__name__}: {what})") from error
        return response.status_code, response.headers, bytes(body)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


async def post(url: str, body: bytes, timeout_s: float) -> str:
    """POST the body of an alarm; return the error, empty for a status of 200 to 299. Redirects are not followed, and
    the body of the answer is not read. Errors name only the URL's origin: the rest may be a secret.

    Proxies and certificates are those of HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and the like.
    """
    place = origin(url)
    try:
        with anyio.fail_after(timeout_s):
            # without TLS the system's certificates would be read for nothing
            async with httpx2.AsyncClient(timeout=None, verify=url.lower().startswith("https:")) as client:
                async with client.stream("POST", url, content=body, headers=HEADERS) as response:
                    status = response.status_code
    except TimeoutError:
        return f"{place} did not answer within {timeout_s:g} s"
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        what = str(error).replace(url, place) or "the connection broke"
        return f"{place} did not answer ({type(error).__name__}: {what})"
    if 200 <= status < 300:
        return ""
    return f"{place} answered {status}" + (", and redirects are not followed" if 300 <= status < 400 else "")
