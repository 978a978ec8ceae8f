"""What has to be true of a state directory, whatever was killed and when."""

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any
from unittest.mock import patch

from support.daemon import Daemon
from support.fork_server import ForkedPopen
from support.intents import open_intents

from apollod.adapters.ipc import offline_trainer
from apollod.adapters.journal import journal_reader
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.wire import messages as msg

UP_S = 900.0  # a queue that grew while everything was killed has to be learned in it


def journal_of(daemon: Daemon) -> list[ev.Event]:
    """Every event, the chain of hashes checked on the way; their numbers have no gap."""
    recorded = [item for item, _ in journal_reader.recorded(daemon.journal)]
    assert [item.seq for item in recorded] == list(range(1, len(recorded) + 1))
    return [item.event for item in recorded]


def check_stopped(daemon: Daemon) -> list[ev.Event]:
    """After a clean stop: chain intact, no step number used twice or left out, nothing open, nothing diverged."""
    events = journal_of(daemon)
    assert journal_reader.verify(daemon.journal) is None
    open_ = open_intents_of(events)
    assert open_ == [], f"open after a clean stop: {open_}; the last events: {[e.kind for e in events[-30:]]}"
    assert not [e for e in events if isinstance(e, ev.ReplayDiverged)]
    check_steps(events)
    return events


def check_steps(events: list[ev.Event]) -> None:
    started = [e.step for e in events if isinstance(e, ev.StepStarted)]
    ended = [e for e in events if isinstance(e, ev.StepCompleted | ev.StepFailed)]
    assert started == list(range(1, len(started) + 1)) == [e.step for e in ended]
    learned = [one for e in ended for one in (e.examples or (e.example,))]
    rejected = {e.example for e in events if isinstance(e, ev.ExampleRejected)}
    rejected |= {one for e in events if isinstance(e, ev.ExampleWithdrawn) for one in e.examples} - {*learned}
    accepted = [e.example for e in events if isinstance(e, ev.ExampleAccepted)]
    assert len(accepted) == len(set(accepted)), "an example was accepted twice"
    queue = [
        e.example
        for e in events
        if isinstance(e, ev.ExampleAccepted | ev.ExampleRequeued) and e.example not in rejected
    ]
    assert learned == queue[: len(learned)], (
        "not each once, or not in the order in which they were accepted or asked for again"
    )


def open_intents_of(events: list[ev.Event]) -> list[tuple[str, object]]:
    return open_intents((e.kind, {name: getattr(e, name) for name in e.__struct_fields__}) for e in events)


def check_replay(daemon: Daemon) -> int:
    """The journal run again from the base model, in a process that nobody kills, gives the same weights: the number of
    its steps. The trainer is forked; tests/integration/test_checkpoint_cli.py replays with one that is started."""
    with patch.object(offline_trainer, "subprocess", ForkedPopen), redirect_stdout(StringIO()) as told:
        code = main(["replay", "--config", str(daemon.config), "--from", "0", "--json"])
    assert code == 0, told.getvalue()
    result = json.loads(told.getvalue())
    last = [e for e in journal_of(daemon) if isinstance(e, ev.StepCompleted | ev.RollbackStarted)][-1]
    version = last.step if isinstance(last, ev.StepCompleted) else last.to
    assert result["verified"] and result["fingerprint"] == last.fingerprint and result["to"] == version
    return int(result["steps"])


def wait_up(daemon: Daemon, done: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
    """Wait as a person would who resumes what was given up: the crashes here are on purpose."""

    def resumed(status: dict[str, Any]) -> bool:
        if any(status[role]["error"] and not status[role]["pid"] for role in ("engine", "trainer")):
            daemon.ask(msg.ResumeRequest())
        return bool(done(status))

    return daemon.wait(resumed, what, UP_S)


def taken(status: dict[str, Any]) -> int:
    """Lines that became something."""
    queue = status["queue"]
    return int(queue["accepted"] + queue["duplicates"] + queue["rejected"])


def say(text: str) -> None:
    """Progress, for `pytest -s`."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
