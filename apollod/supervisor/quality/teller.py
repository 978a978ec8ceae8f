"""Sends a notification about an alarm to `[quality] on_alarm`, once; `core/rules/quality` decides when, how often."""

import json
import os
import socket
from importlib import import_module
from shutil import which
from typing import Any

import anyio.to_thread
import msgspec

from apollod.adapters.system.clock import iso
from apollod.adapters.system.processes import needed_of, run_hook
from apollod.adapters.system.web_address import is_url, problem
from apollod.core.facts.quality.state import Message
from apollod.errors import ConfigError
from apollod.supervisor.config import Config

SCHEMA_VERSION = 1
LIMIT_S = 10.0


def refused(config: Config) -> ConfigError | None:
    """The error in `[quality] on_alarm`, as far as known before an alarm; None: none. Blocking."""
    wanted = config.quality.on_alarm
    if isinstance(wanted, str) and is_url(wanted):
        why = problem(wanted)
        return ConfigError(f"[quality] on_alarm is {why}", "write it like https://host/path") if why else None
    command = command_of(wanted)
    if not command or which(command[0]) is not None:
        return None
    hint = "check its path and mode" + ("; arguments: a list of strings" if " " in command[0] else "")
    return ConfigError(f"[quality] on_alarm: the command {command[0]!r} is not there, or may not be run", hint)


def command_of(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    """The command; a text is one without arguments."""
    return wanted if isinstance(wanted, tuple) else (wanted,) if wanted else ()


def message_of(config: Config, message: Message) -> dict[str, Any]:
    """The notification, see docs/guard.md. It holds no secrets."""
    over, told = message.about == "settled", message.about != "alarmed"
    return {
        "schema_version": SCHEMA_VERSION, "event": message.about, "incident": message.incident,
        "at": iso(message.at_ns), "step": message.step, "to": message.to, "metrics": list(message.metrics),
        "drops": msgspec.to_builtins(message.drops), "taken_back": message.taken_back if over else None,
        "how": message.how if told else None, "by": message.by if over else None,
        "model": config.engine.served_name, "host": socket.gethostname(), "journal": str(config.journal_path),
    }  # fmt: skip


async def tell(config: Config, message: Message) -> str:
    """Send the notification. Returns the error; empty: it was delivered."""
    wanted, body = config.quality.on_alarm, json.dumps(message_of(config, message)).encode()
    if isinstance(wanted, str) and is_url(wanted):
        http_client = await anyio.to_thread.run_sync(import_module, "apollod.adapters.http_client")
        return str(await http_client.post(wanted, body, LIMIT_S))
    facts = {"APOLLOD_ALARM_EVENT": message.about, "APOLLOD_ALARM_INCIDENT": str(message.incident)}
    return await run_hook(command_of(wanted), needed_of(os.environ) | facts, LIMIT_S, body)
