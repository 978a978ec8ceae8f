"""A value as TOML text."""

import json
from typing import Any


def toml_value(value: Any) -> str:
    """A string, number, truth value or list of these. JSON is TOML here, except for escaped surrogates, which TOML does
    not have, and for DEL, which it wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
