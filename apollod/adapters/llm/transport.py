"""The HTTP client itself: the one module here that imports httpx2; to be imported with the first request."""

from collections.abc import Mapping

import httpx2

from apollod.adapters.llm.endpoint import Endpoint
from apollod.errors import LlmNonsense, LlmUnreachable
from apollod.wire.request_marks import OURS


class Transport:
    """Connections to one endpoint. The caller sets time limits, except for connecting."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "apollod"}
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
