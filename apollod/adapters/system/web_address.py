"""A URL or an address that a person configured, without loading what it is asked with. Pure."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_url(text: str) -> bool:
    """True if the text is meant as a URL (http or https)."""
    return text.lower().startswith(("http://", "https://"))


def problem(url: str) -> str:
    """The reason why it cannot be asked; empty: it can. Does not repeat the URL, which may hold a secret."""
    if any(character <= " " or character == "\x7f" for character in url):
        return "a URL with a space or a control character in it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "no URL: its host or port is malformed"
    if not parts.hostname:
        return "a URL without a host"
    return "a URL with port 0" if port == 0 else ""


def origin(url: str) -> str:
    """Scheme, host and port: what may be told of a URL whose path or user may be a secret."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


def is_loopback(host: str) -> bool:
    """True if only processes of this machine reach an address that a server listens on, as it is configured."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
