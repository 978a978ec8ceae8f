"""The whole daemon with training settings that are not the default: tiers, several examples a step, some layers,
loss limits, and a trainer for which there is not enough memory."""

import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, chat_line
from support.invariants import check_replay

from apollod.adapters.journal import journal_reader
from apollod.core import events as ev
from apollod.core.settings import LessonSettings

FIRST = {
    "APOLLOD_TRAINER__ACCUMULATE": "2", "APOLLOD_TRAINER__LAYERS": "0-1", "APOLLOD_TRAINER__FREEZE": '["*.A_log"]',
    "APOLLOD_TRAINER__LR_DIRECT": "2e-4", "APOLLOD_TRAINER__MAX_TOKENS": "65536", "APOLLOD_TRAINER__LOSS_SPIKE": "50.0",
    "APOLLOD_TRAINER__STOP_S": "2",
}  # fmt: skip
SECOND = {
    **FIRST,
    "APOLLOD_TRAINER__ACCUMULATE": "1",
    "APOLLOD_TRAINER__LAYERS": "1",
    "APOLLOD_TRAINER__LOSS_MAX": "1e-6",
}


ENDS = (
    "shutdown.requested", "step.completed", "step.failed", "checkpoint.committed", "trainer.exited", "engine.exited",
    "daemon.stopped",
)  # fmt: skip


def facts(daemon: Daemon, cls: type[ev.Event]) -> list[Any]:
    return [item.event for item, _ in journal_reader.recorded(daemon.journal) if isinstance(item.event, cls)]


def learn(daemon: Daemon, *lines: str) -> list[ev.StepStarted]:
    """Submit lines together, wait until they are done with; the steps that they took."""
    before, file = len(facts(daemon, ev.StepStarted)), daemon.root / "lines.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    daemon.ctl("submit", str(file))
    daemon.wait(lambda s: not s["queue"]["pending"] or s["state"] == "degraded", "the queue to be empty")
    return facts(daemon, ev.StepStarted)[before:]


def in_tier(tier: str, line: str) -> str:
    return json.dumps({**json.loads(line), "tier": tier})


@pytest.fixture(scope="module")
def daemon(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Its tests run in order."""
    made = Daemon(tmp_path_factory.mktemp("training"), tiny_model)
    made.start(FIRST)
    made.wait_ready()
    yield made
    if made.alive():
        made.stop()


def test_how_an_example_comes_decides_its_rate_and_what_it_is_learned_with(daemon: Daemon) -> None:
    daemon.ctl("pause")
    daemon.drop(
        "a.jsonl", *[chat_line(f"bulk {i}?", "yes.") for i in range(3)], in_tier("direct", chat_line("urgent?", "yes."))
    )
    daemon.wait(lambda s: s["queue"]["pending"] == 4, "the file to be taken")
    assert daemon.submit(chat_line("posted?", "yes."), source="http")["examples"]
    daemon.ctl("resume")
    daemon.wait_learned(5)
    steps = facts(daemon, ev.StepStarted)
    assert [len(ev.all_examples(s)) for s in steps] == [2, 2, 1], "direct ones first, tiers are not mixed"
    assert [s.lr for s in steps] == [2e-4, 1e-3, 1e-3]
    assert daemon.query("SELECT tier, state, step FROM examples ORDER BY seq") == [
        ("bulk", "trained", 2), ("bulk", "trained", 2), ("bulk", "trained", 3), ("direct", "trained", 1),
        ("direct", "trained", 1),
    ]  # fmt: skip
    second = steps[1].examples[1]
    told = json.loads(daemon.ctl("why", second, "--json").stdout)
    assert (told["example"]["tier"], told["example"]["step"], told["step"]["examples"]) == (
        "bulk",
        2,
        list(steps[1].examples),
    )
    assert second in daemon.ctl("why", "2").stdout


def test_status_counts_what_is_trained(daemon: Daemon) -> None:
    status = daemon.status()
    assert 0 < status["weights"]["trained"] < status["weights"]["parameters"]
    assert status["queue"]["trained"] == 5 and status["step"] == 3
    assert (status["optimizer"]["lr"], status["optimizer"]["lr_direct"]) == (1e-3, 2e-4)


def test_an_engine_that_cannot_say_what_it_thinks_lets_steps_run_and_status_says_so(daemon: Daemon) -> None:
    holding = daemon.status()["holding"]
    assert (holding["hold"], holding["anchors"], holding["moved"]) == (
        LessonSettings().hold,
        0,
        None,
    ) and "501" in holding["reason"]
    assert "holding     nothing: " in daemon.ctl("status").stdout
    assert [one.gives_up for one in facts(daemon, ev.AnchorFailed)] == ["all"]
    assert not any(step.held for step in facts(daemon, ev.StepStarted))


def test_an_example_that_needs_too_much_memory_is_held_and_the_daemon_goes_on(daemon: Daemon) -> None:
    """The limit is set from outside on the trainer's address space."""
    before = daemon.status()
    used = int(Path(f"/proc/{before['trainer']['pid']}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(before["trainer"]["pid"], resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
    (step,) = learn(daemon, json.dumps({"text": "The lighthouse keeper counts the waves. " * 400}))
    after = daemon.wait(lambda s: s["trainer"]["ready"], "the trainer")
    assert after["trainer"]["pid"] == before["trainer"]["pid"] and after["queue"]["held"] == 1
    resource.prlimit(before["trainer"]["pid"], resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (
        after["weights"]["fingerprint"] == before["weights"]["fingerprint"]
        and after["engine"]["pid"] == before["engine"]["pid"]
    )
    told = json.loads(daemon.ctl("why", step.example, "--json").stdout)["example"]
    assert (
        told["state"] == "held" and "out of memory in a step over" in told["reason"] and "max_tokens" in told["reason"]
    )
    assert learn(daemon, chat_line("and now?", "goes on."), chat_line("and then?", "goes on."))[0].step == step.step + 1
    daemon.wait_learned(7)
    assert not facts(daemon, ev.ReplayDiverged) and not facts(daemon, ev.TrainingHalted)


def test_what_waits_is_withdrawn_and_comes_back_when_it_is_asked_for(daemon: Daemon) -> None:
    before = daemon.status()
    assert daemon.ctl("pause").stdout == "paused\n"
    daemon.drop("w.jsonl", chat_line("withdrawn 1?", "yes."), chat_line("withdrawn 2?", "yes."))
    daemon.wait(lambda s: s["queue"]["pending"] == 2, "the file to be taken")
    told = daemon.ctl("example", "withdraw", "--source", str(daemon.inbox / "w.jsonl")).stdout
    assert told.startswith("2 examples no longer wait")
    queue = daemon.status()["queue"]
    assert (queue["pending"], queue["withdrawn"]) == (0, 2)
    ids = [row[0] for row in daemon.query("SELECT id FROM examples WHERE state = 'withdrawn' ORDER BY seq")]
    daemon.ctl("relearn", ids[1])
    daemon.ctl("resume")
    daemon.wait_learned(before["queue"]["trained"] + 1)
    assert daemon.query("SELECT state FROM examples ORDER BY seq DESC LIMIT 2") == [("trained",), ("withdrawn",)]
    assert daemon.ctl("example", "withdraw", ids[1], check=False).returncode == 1


def test_the_status_names_the_phases_of_a_start(daemon: Daemon) -> None:
    before, seen = daemon.status(), set()
    os.kill(before["trainer"]["pid"], signal.SIGKILL)
    daemon.wait(
        lambda s: s["trainer"]["restarts"] > before["trainer"]["restarts"] and s["trainer"]["ready"],
        "another trainer",
        poll_s=0.01,
        look=lambda s: seen.add((s.get("start") or {}).get("phase")),
    )
    assert "attaching" in seen and seen <= {None, "attaching", "restoring", "replaying", "aligning"}


def test_a_stop_serves_to_the_end_and_abandons_a_step_that_takes_too_long(daemon: Daemon) -> None:
    """A trainer that stands still is in a step that never ends. The next life learns it."""
    before = daemon.wait(lambda s: s["state"] == "serving" and not s["start"], "the comparison after the start")
    encoded = len(facts(daemon, ev.ExampleEncoded))
    daemon.ctl("pause")
    daemon.drop("long.jsonl", chat_line("a long one?", "yes."))
    while len(facts(daemon, ev.ExampleEncoded)) == encoded:
        time.sleep(0.05)
    os.kill(before["trainer"]["pid"], signal.SIGSTOP)
    daemon.ctl("resume")
    step = daemon.wait(lambda s: s["running"], "the step")["running"]["step"]
    assert daemon.process is not None
    began, served_s = time.monotonic(), 0.0
    daemon.process.send_signal(signal.SIGTERM)
    while daemon.process.poll() is None:
        try:
            assert daemon.get("/health")[0] == 200
            served_s = time.monotonic() - began
        except OSError:
            pass
        time.sleep(0.02)
    assert daemon.process.poll() == 0 and served_s > 2.0, "requests were served for as long as the step was waited for"
    ends = [e.kind for item, _ in journal_reader.recorded(daemon.journal) if (e := item.event).kind in ENDS]
    assert ends[ends.index("shutdown.requested") :] == [
        "shutdown.requested", "trainer.exited", "engine.exited", "daemon.stopped"
    ]  # fmt: skip
    daemon.start(FIRST)
    daemon.wait_learned(before["queue"]["trained"] + 1)
    assert [e.step for e in facts(daemon, ev.StepCompleted)][-1] == step == facts(daemon, ev.StepStarted)[-1].step
    assert not facts(daemon, ev.ReplayDiverged)


def test_losses_above_the_limit_halt_training_after_three_and_serving_goes_on(daemon: Daemon) -> None:
    daemon.stop()
    daemon.start(SECOND)
    before = daemon.wait_ready()
    steps = learn(daemon, *[chat_line(f"above {i}?", "the limit.") for i in range(4)])
    status = daemon.wait(lambda s: s["state"] == "degraded", "a halt")
    assert len(steps) == 3 and all(s.loss_limit == 1e-6 for s in steps)
    assert "3 steps in a row wrote nothing" in status["error"] and "above the limit 1e-06" in status["error"]
    assert "ctl resume" in status["error"]
    assert (status["queue"]["skipped"], status["queue"]["pending"]) == (3, 1)
    assert status["weights"]["fingerprint"] == before["weights"]["fingerprint"]
    assert daemon.get("/health")[0] == 200 and status["engine"]["pid"] == before["engine"]["pid"], (
        "it is served no more"
    )
    daemon.ctl("resume")
    daemon.wait(lambda s: s["queue"]["skipped"] == 4 and s["state"] == "serving", "the last one")


def test_all_of_it_is_replayed_to_the_same_bits(daemon: Daemon) -> None:
    last = daemon.status()["weights"]["fingerprint"]
    daemon.stop()
    assert check_replay(daemon) == 10 and facts(daemon, ev.StepCompleted)[-1].fingerprint == last
