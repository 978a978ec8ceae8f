"""Address of a model, and the limits of requests to it."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from apollod.errors import ConfigError


@dataclass(frozen=True)
class Endpoint:
    """Address of a model, and the limits of requests to it."""

    base_url: str
    """up to and including `/v1`"""
    model: str
    api_key: str = field(default="", repr=False)
    concurrency: int = 8
    """requests at one time; more wait"""
    attempts: int = 4
    """largest number of attempts of one request"""
    try_s: float = 60.0
    """time limit of one attempt"""
    total_s: float = 180.0
    """time limit of the request, with all waits and attempts"""
    connect_s: float = 5.0
    answer_bytes_max: int = 64 << 20
    use_environment: bool = False
    """take proxies and certificates from HTTPS_PROXY, SSL_CERT_FILE and the like"""
    ours: bool = False
    """our own engine, asked by the daemon itself: the request says so, and is not counted as a user's"""

    def __post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
            raise ConfigError(
                f"{url.scheme}://{url.hostname} is not the base URL of an endpoint",
                "write it like http://127.0.0.1:8000/v1, and a key as api_key",
            )
        if not all("!" <= character <= "~" for character in self.api_key):
            raise ConfigError("the API key holds white space or characters that no header may", "write it again")
        if self.concurrency < 1 or self.attempts < 1:
            raise ConfigError("concurrency and attempts have to be at least 1", "raise them")

    def url_of(self, path: str, beside: bool = False) -> str:
        """URL of a path below the base URL; or `beside` its `/v1`, for vLLM's paths outside OpenAI's API."""
        base = self.base_url.rstrip("/")
        return (base.removesuffix("/v1") if beside else base) + path

    def without_key(self, text: str) -> str:
        """Remove the key from a text for messages: some endpoints quote the key that they refuse."""
        return text.replace(self.api_key, "[key]") if self.api_key else text
