"""Sends an alarm by POST. Loads httpx2, so it is imported only when there is an alarm to send."""

import anyio
import httpx2

from apollod.adapters.system.web_address import origin

HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "apollod"}


async def post(url: str, body: bytes, timeout_s: float) -> str:
    """POST the body; return the error, empty for a status of 200 to 299. Redirects are not followed, and the body of
    the answer is not read. Errors name only the URL's origin: the rest may be a secret.

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
