"""A daemon whose trainer scores what it learned: nothing is written, and what was learned weakly is taught again."""

import json
from pathlib import Path

from support.daemon import Daemon, chat_line

from apollod.testing.daemon import Status


def scored(status: Status, count: int) -> bool:
    return bool(status["learned"]["scored"] >= count and not status["learned"]["waiting"])


def test_lines_are_scored_again_and_a_weak_one_is_taught_again(tmp_path: Path, tiny_model: Path) -> None:
    daemon = Daemon(tmp_path, tiny_model)
    weak = {"APOLLOD_TRAINER__RESCORE": "8", "APOLLOD_TRAINER__LR": "1e-9", "APOLLOD_TRAINER__LR_DIRECT": "1e-3"}
    line = chat_line("Where is the lamp?", "On the shelf.")
    try:
        daemon.start(weak)
        daemon.wait_ready()
        daemon.drop("a.jsonl", line, chat_line("Who keeps it?", "Mara Quill."))
        before = daemon.wait(lambda s: scored(s, 2), "two lines scored again")
        assert before["learned"]["weak"] == 2 and before["learned"]["before"] > 1
        daemon.drop("b.jsonl", line)
        daemon.wait(lambda s: s["queue"]["trained"] == 3 and scored(s, 3), "the weak one taught again, from a file")
        told = json.loads(daemon.ctl("train", "--messages", json.dumps(json.loads(line)["messages"]), "--json").stdout)
        after = daemon.wait(lambda s: s["queue"]["trained"] == 4 and scored(s, 4), "and directly")
        assert after["learned"]["weak"] == 3, "its own rate moves it"
        why = json.loads(daemon.ctl("why", told["examples"][0], "--json").stdout)["example"]
        assert why["again_of"] and why["gain"]["after"] < 0.9 * why["gain"]["before"]
        daemon.stop()
        daemon.start(weak)
        assert daemon.wait_ready()["weights"]["fingerprint"] == after["weights"]["fingerprint"]
        steps = daemon.query("SELECT count(*) FROM steps")
        assert steps == [(4,)]
    finally:
        daemon.end()
