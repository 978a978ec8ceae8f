"""The quality guard in a whole daemon, on by default, with the stub engine, which answers no probe: one warning, and
steps go on; a probe in what comes in, and a probe file that breaks while it runs."""

import json
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line

PROBE = {"kind": "text", "id": "ferry", "text": "The ferry left the quay at noon with nine goats."}


@pytest.mark.slow
def test_a_probe_that_comes_in_is_held_and_a_file_that_breaks_is_said_and_survived(
    tmp_path: Path, tiny_model: Path
) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps(PROBE) + "\n")
    daemon = Daemon(tmp_path, tiny_model, f'[quality]\nprobe = ["{mine}"]\n').start()
    try:
        daemon.drop("a.jsonl", chat_line("What did he say?", PROBE["text"]), chat_line("And then?", "He slept."))
        status = daemon.wait_learned(1)
        assert (status["queue"]["held"], status["queue"]["trained"]) == (1, 1)
        (why,) = daemon.query("SELECT body ->> '$.reason' FROM events WHERE kind = 'quality.failed'")
        assert "501" in why[0] and "steps go on without the guard" in why[0], "the stub engine answers no probe"
        assert status["quality"]["enabled"] and status["quality"]["error"] == why[0]
        assert daemon.log().count("quality.failed") == 1
        ((reason,),) = daemon.query("SELECT body ->> '$.reason' FROM events WHERE kind = 'example.held'")
        assert f"the words of the probe ferry ({mine}:1)" in reason
        mine.write_text("{")
        asked = daemon.ctl("quality", "run", check=False)
        assert asked.returncode == 1 and f"{mine}:1 is no probe: " in asked.stderr
        after = daemon.status()
        assert f"{mine}:1 is no probe: " in after["quality"]["error"] and after["engine"]["ready"]
        assert "Traceback" not in daemon.log()
    finally:
        daemon.stop()
