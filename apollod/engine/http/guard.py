"""Guards routes against web pages: refuses requests that a page could send without its reader's knowledge.

A page on any site can make its visitor's browser POST to a loopback address. As long as it is `text/plain` the browser
sends no preflight (Fetch standard, CORS-safelisted request), and vLLM by default allows every origin
(`--allowed-origins`), so that such a page may read, too. With DNS rebinding the page's own name leads here, so that
even its origin matches. Hence three checks, of headers that a page cannot forge: `Host` names this server, `Origin` is
this server's own, and the body of a changing request is declared as JSON.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

READS = frozenset({"GET", "HEAD"})
"""methods of read-only routes"""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
JSON_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"


class Refused(NamedTuple):
    """The answer to a refused request."""

    status: int
    error: str
    hint: str


class Guard:
    """The rule for all our routes.

    `listener`: the server's configured address. `names`: its further names (`[engine] names`): a host, or host:port.
    `keyed`: an API key is required, and was checked before this.
    """

    def __init__(self, listener: str, names: Iterable[str] = (), keyed: bool = False) -> None:
        self._any_address = listener.strip("[]") in EVERY_ADDRESS
        self._hosts = {_host(each) for each in (listener, *LOOPBACK, *names)} - EVERY_ADDRESS
        self._names = {each.lower() for each in names}
        self._keyed = keyed

    def refusal(self, method: str, headers: Sequence[tuple[bytes, bytes]], bodiless: bool = False) -> Refused | None:
        """The refusal of this request; None if it is allowed.

        `headers`: raw ones, names in lower case (ASGI). `bodiless`: a request without a body may be declared as bytes,
        as aiohttp does; a page could not without asking before (a preflight).
        """
        if method == "OPTIONS":  # a browser's preflight
            return None
        hosts, origins = _values(headers, b"host"), _values(headers, b"origin")
        # A page rebound to this address does not have the key, and no browser adds one by itself. So with a
        # key a reverse proxy may leave its own name in `Host`.
        if not self._keyed and not (len(hosts) == 1 and self._is_ours(hosts[0])):
            return Refused(
                403,
                f"this server is not called {', '.join(hosts) or 'nothing'} (header Host)",
                "use its address, add the name to [engine] names, or set [engine] api_key",
            )
        if not all(self._is_own_origin(origin, hosts) for origin in origins):
            return Refused(
                403,
                f"a page of {', '.join(origins)} may not ask anything here (header Origin)",
                "add that page's host:port to [engine] names if it is yours",
            )
        return None if method in READS else self._not_json(headers, bodiless)

    def _is_ours(self, authority: str) -> bool:
        """True for one of our hosts, with any port: the client's may be forwarded."""
        host = _host(authority)
        return host in self._hosts or (self._any_address and _is_address(host))

    def _is_own_origin(self, origin: str, hosts: Sequence[str]) -> bool:
        """True for the requested server itself, such as vLLM's /docs, or a configured name: a host with any port, or
        one of its ports."""
        authority = _authority(origin)
        return bool(authority) and (
            authority in map(str.lower, hosts) or {authority, _host(authority)} & self._names != set()
        )

    @staticmethod
    def _not_json(headers: Sequence[tuple[bytes, bytes]], bodiless: bool) -> Refused | None:
        """The refusal of a body that is not JSON. An empty request without a type is allowed: POST /checkpoint needs no
        body."""
        types = _values(headers, b"content-type")
        empty = _values(headers, b"content-length") in ([], ["0"]) and not _values(headers, b"transfer-encoding")
        kinds = {each.partition(";")[0].strip().lower() for each in types}
        if (empty and (not types or (bodiless and kinds == {BYTES_TYPE}))) or kinds == {JSON_TYPE}:
            return None
        return Refused(
            415, f"the body is {', '.join(types) or 'of no type'}, not JSON", f"send `Content-Type: {JSON_TYPE}`"
        )


def _values(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in headers if key == name]


def _authority(origin: str) -> str:
    """host:port of an origin; empty for `null` and for invalid ones."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _host(authority: str) -> str:
    """The host of `host:port`, in lower case, without the brackets of an IPv6 address and the root's dot."""
    text = authority.strip().lower()
    if _is_address(text):  # an IPv6 address without brackets, as in the configuration
        return text
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
