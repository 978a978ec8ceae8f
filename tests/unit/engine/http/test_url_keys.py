"""A key in a URL opens vLLM's own routes, for programs alone."""

import base64
from typing import Any

import pytest

from apollod.engine.http.url_keys import UrlKeys, with_bearer
from apollod.supervisor import child_commands
from apollod.supervisor.config import load_config


def basic(credentials: str) -> bytes:
    return b"Basic " + base64.b64encode(credentials.encode())


def told(authorization: bytes, *more: tuple[bytes, bytes], path: str = "/v1/models", **scope: Any) -> bytes:
    """The header as whoever comes after sees it."""
    given = {"type": "http", "path": path, "headers": [(b"authorization", authorization), *more], **scope}
    return dict(with_bearer(given)["headers"])[b"authorization"]


@pytest.mark.parametrize("credentials", ["x:secret", ":secret"])
def test_the_password_is_the_key(credentials: str) -> None:
    assert told(basic(credentials)) == b"Bearer secret"
    assert told(basic(credentials), path="/m/v1/models", root_path="/m") == b"Bearer secret"


def test_what_is_no_password_stays_what_it_is() -> None:
    for authorization in (b"Bearer secret", basic("secret"), basic("x:"), b"Basic %%%", b"", b"Basic"):
        assert told(authorization) == authorization


def test_other_routes_and_browsers_have_to_send_it_as_it_is() -> None:
    assert told(basic("x:secret"), path="/apollod/status") == basic("x:secret")
    for header in (b"origin", b"sec-fetch-site"):
        assert told(basic("x:secret"), (header, b"none")) == basic("x:secret")


def test_a_key_that_no_header_can_have_opens_nothing() -> None:
    assert told(basic("x:ключ")) == b"Bearer ????"
    assert told(basic("x:schlüssel")) == b"Bearer schl\xfcssel"


def test_the_engine_gets_it_with_the_routes_of_trainers() -> None:
    module, _, name = child_commands.URL_KEYS.rpartition(".")
    assert (module, name) == (UrlKeys.__module__, UrlKeys.__name__)
    for enabled in (False, True):
        config = load_config(None, ["model.path=/m", f"control.enabled={str(enabled).lower()}"], {})
        assert (child_commands.URL_KEYS in child_commands.engine_command(config, "/m", None)) == enabled
