"""Checks a configured URL or address, without loading an HTTP client. Pure."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_url(text: str) -> bool:
    """True if the text is meant as a URL (http or https)."""
    return text.lower().startswith(("http://", "https://"))


def problem(url: str) -> str:
    """Reason why the URL cannot be used; empty if it can. Does not repeat the URL, which may hold a secret."""
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
    """Scheme, host and port: the part of a URL that may be shown when its path or user may be a secret."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


def is_loopback(host: str) -> bool:
    """True if a configured listening address is reachable only from this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
