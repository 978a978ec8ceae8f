"""Tests answers against a regular expression or a JSON schema in a process of its own, since either can take forever
and cannot be interrupted. Reads a JSON object on stdin; writes a line of JSON for each check as soon as it is done, so
that the caller knows which check a killed process was at.

Rule for this file: it is run by its path, isolated from the environment, and imports only the standard library and
jsonschema.
"""

import json
import re
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

SHOWN = 200  # characters of a message of jsonschema, which shows the value
REASON_MAX = 300


def schema_validator(schema: Any) -> Any:
    """Return a validator with `iter_errors`. References resolve only within the schema: nothing is fetched. Raises
    ValueError for an invalid schema."""
    from jsonschema import exceptions, validators  # type: ignore[import-untyped]  # here: it takes 0.1 s
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        raise ValueError(f"{error.json_path}: {error.message[:SHOWN]}") from error
    return kind(schema, registry=REGISTRY)


def matches(pattern: str, answer: str) -> str:
    """Reason why the answer fails; empty if it passes."""
    return "" if re.search(pattern, answer) else f"the answer does not match {pattern!r}"


def follows(schema: Any, answer: str) -> str:
    """Reason why the answer fails; empty if it passes."""
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError) as error:
        return f"the answer is no JSON: {error}"
    wrong = next(iter(schema_validator(schema).iter_errors(value)), None)
    return "" if wrong is None else f"the answer does not follow the schema, {wrong.json_path}: {wrong.message[:SHOWN]}"


_CHECKS: Mapping[str, Callable[[Any, str], str]] = {"regex": matches, "schema": follows}

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    for expected, answer in asked["checks"]:
        # kills this process even if the daemon, which would do it, was killed
        signal.setitimer(signal.ITIMER_REAL, asked["limit_s"])
        sys.stdout.write(json.dumps(_CHECKS[asked["kind"]](expected, answer)[:REASON_MAX]) + "\n")
        sys.stdout.flush()
