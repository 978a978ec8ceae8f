"""The inbox in the daemon itself, which goes on where its journal says that it was."""

from pathlib import Path

import pytest
from support.daemon import Daemon


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped, with a snapshot"])
def test_the_daemon_goes_on_in_rotated_files_where_it_was(tmp_path: Path, killed: bool) -> None:
    """One without a model reads its inbox all the same."""
    daemon = Daemon(tmp_path, tmp_path / "no-model")
    taken = (
        "SELECT key, body ->> '$.line' FROM events WHERE kind IN ('source.discovered', 'source.consumed') ORDER BY seq"
    )

    def take(name: str, *lines: str) -> None:
        ((before,),) = daemon.query("SELECT total(line) FROM sources")
        daemon.drop(name, *lines)
        daemon.wait(
            lambda _: daemon.query("SELECT total(line) FROM sources") == [(before + len(lines),)], f"{name} taken", 30
        )

    try:
        daemon.start()
        daemon.wait(lambda s: s["error"], "up", 180)
        take("log.jsonl", '{"text": "one"}', "bad")
        (daemon.inbox / "log.jsonl").rename(daemon.inbox / "log.1.jsonl")
        take("log.jsonl", '{"text": "two"}')
        before = daemon.query(taken)
        daemon.kill() if killed else daemon.stop()
        daemon.start()
        daemon.wait(lambda s: s["error"], "up again", 180)
        take("z.jsonl", '{"text": "three"}')  # the others come before it
        after = daemon.query(taken)
        assert after[: len(before)] == before and [line for _, line in after[len(before) :]] == [None, 1]
        with (daemon.inbox / "log.1.jsonl").open("a") as file:
            file.write('{"text": "four"}\n')
        status = daemon.wait(lambda s: s["queue"]["pending"] == 4, "what a writer added to the old file", 180)
        assert (status["queue"]["duplicates"], status["queue"]["rejected"]) == (0, 1)
    finally:
        if daemon.alive():
            daemon.stop()


def test_personal_data_is_kept_only_where_nobody_asked_for_less(tmp_path: Path) -> None:
    """In the journal and in the quarantine: read, refused and sent."""
    for personal in (False, True):
        root = tmp_path / str(personal)
        daemon = Daemon(root, root / "no-model", f"[redaction]\npersonal = {str(personal).lower()}\n")
        try:
            daemon.start()
            daemon.wait(lambda s: s["error"], "up", 180)
            daemon.drop("a.jsonl", '{"text": "write to jo.doe@web.de"}', "no JSON of jo.doe@web.de")
            daemon.submit('{"text": "or call +49 171 2345678"}')
            daemon.wait(lambda s: s["queue"]["pending"] == 2 and s["queue"]["rejected"], "read", 180)
        finally:
            daemon.stop()
        kept = b"".join(file.read_bytes() for file in (root / "state").rglob("*") if file.is_file())
        for value, kind in ((b"jo.doe@web.de", b"[redacted email"), (b"171 2345678", b"[redacted phone")):
            assert ((value in kept), (kind in kept)) == (not personal, personal)
