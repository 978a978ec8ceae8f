"""The whole daemon, real: a served model learns from what is dropped, posted and submitted."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line
from support.fingerprints import file_fingerprint
from support.fork_server import said

from apollod.core.settings import LessonSettings
from apollod.engine.http.metrics import FRESH_S
from apollod.trainer.bind.live_fingerprint import format as format_fingerprint

pytestmark = pytest.mark.engine


def trained(daemon: Daemon) -> int:
    return daemon.status()["queue"]["trained"]


def scrape(daemon: Daemon) -> dict[str, float]:
    with urllib.request.urlopen(f"{daemon.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def ids_of(daemon: Daemon, question: str, answer: str) -> list[int]:
    messages = json.loads(chat_line(question, answer))["messages"]
    code, body = daemon.post("/tokenize", {"model": "tiny", "messages": messages, "add_generation_prompt": False})
    assert code == 200
    return body["tokens"]


def test_the_served_model_learns_a_dropped_file_in_the_same_process_and_memory(running):
    before = running.status()
    ids = ids_of(running, "what is it called?", "it is called miso.")
    logprob = running.logprob(ids)
    running.drop("learn.jsonl", *[chat_line("what is it called" + "?" * i, "it is called miso.") for i in range(1, 13)])
    after = running.wait_learned(before["queue"]["trained"] + 12)
    assert running.logprob(ids) > logprob + 1.0
    assert after["engine"]["pid"] == before["engine"]["pid"] and after["engine"]["restarts"] == 0
    assert after["step"] == before["step"] + 12
    w = after["weights"]
    assert w["bridge"] == "memfd" and w["frozen"] == 0 and w["live"] + w["cast"] + w["rederive"] == w["parameters"] > 50
    assert w["fingerprint"] != before["weights"]["fingerprint"]


def served_version(daemon: Daemon) -> str:
    """What a completion says of the weights that it saw."""
    body = json.dumps({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{daemon.url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.headers["X-Apollod-Weights-Version"])


def test_every_step_holds_what_the_model_said_before_the_first_one(running):
    """Steps of a file are among those that `submit --checkpoint` and a replay of this daemon run again."""
    held = running.query(
        "SELECT body ->> '$.held', body ->> '$.hold' FROM events WHERE kind = 'step.started' ORDER BY seq"
    )
    hold = LessonSettings().hold
    assert held and all(json.loads(anchors) and weight == hold for anchors, weight in held)
    found = running.wait(lambda s: not s["holding"]["missing"] and not s["queue"]["pending"], "all anchors", 300)[
        "holding"
    ]
    assert found["anchors"] >= 60 and found["moved"] is not None, "a random model may say what cannot be found again"
    sorts = dict(running.query("SELECT sort, count(*) FROM anchors WHERE retired IS NULL GROUP BY sort"))
    assert min(sorts["general"], sorts["neighbour"]) > 20
    assert running.query("SELECT max(steps) FROM anchors") > [(0,)]


def test_after_a_rollback_the_served_model_has_forgotten(running):
    """More of rollbacks in test_rollback and tests/crash; here is what those do not see: what is served."""
    before = running.status()
    ids = ids_of(running, "what is bad?", "it is bad 0.")
    logprob = running.logprob(ids)
    running.drop("bad-ones.jsonl", *[chat_line("what is bad?" + " " * i, f"it is bad {i}.") for i in range(12)])
    learned = running.wait_learned(before["queue"]["trained"] + 12)
    assert running.logprob(ids) > logprob + 0.5
    done = json.loads(running.ctl("rollback", "--to", str(before["step"]), "--json").stdout)
    assert (done["step"], done["fingerprint"]) == (before["step"], before["weights"]["fingerprint"])
    running.wait(lambda s: s["weights"]["served"] == before["step"], "the engine to be told", 180)
    assert running.logprob(ids) == pytest.approx(logprob, abs=0.02)
    assert served_version(running).split("-")[-1] == str(before["step"])
    assert running.status()["engine"]["pid"] == learned["engine"]["pid"]
    running.drop("after-bad.jsonl", chat_line("and after that?", "it goes on."))
    after = running.wait_learned(before["queue"]["trained"] + 1)
    assert after["step"] == learned["step"] + 1, "a number was used again"


def test_engine_and_trainer_agree_on_what_is_served(running):
    """The default way of publishing (hogwild): what is served is what was learned, what this processor's kernels pack
    included, and nobody waited for it. A planted copy, on any processor: test_publish."""
    before = running.status()
    running.drop("agree.jsonl", *[chat_line(f"agree {i}?", "on all of it.") for i in range(10)])
    running.wait_learned(before["queue"]["trained"] + 10)
    aligned = running.wait(
        lambda s: s["weights"]["alignment"]["step"] > before["step"] and s["weights"]["alignment"]["tokens"] == 255,
        "a comparison over the whole text after steps",
    )["weights"]
    assert aligned["alignment"]["aligned"]
    assert aligned["alignment"]["mean_abs_diff"] < 0.02
    assert running.query("SELECT count(*) FROM events WHERE kind = 'engine.paused'") == [(0,)]


def test_status_has_the_fields_of_the_contract(running):
    status = json.loads(running.ctl("status", "--json").stdout)
    assert status["schema_version"] == 1
    assert status["state"] in ("serving", "training")
    fields = {
        "engine": {"pid", "ready", "url", "model", "restarts"},
        "trainer": {"pid", "ready", "restarts"},
        "weights": {"bridge", "parameters", "live", "cast", "rederive", "frozen", "bytes", "fingerprint"},
        "queue": {"pending", "held", "trained", "rejected", "duplicates"},
        "optimizer": {"name", "rank", "state_bytes"},
        "checkpoint": {"step", "at", "fingerprint"},
        "journal": {"seq", "bytes", "head_hash"},
    }
    for section, names in fields.items():
        assert names <= status[section].keys(), section
    assert {"step", "quality", "uptime_s"} <= status.keys()
    assert running.ctl("status").stdout.startswith("state ")
    base = running.wait(lambda s: s["base"]["kept"], "the base to be kept", 180)["base"]
    assert base["how"] in ("reflink", "link", "copy") and (Path(base["path"]) / "model.safetensors").is_file()
    assert base["path"].startswith(str(running.root / "state" / "base"))


def test_train_over_http_and_its_status(running):
    before = trained(running)
    code, body = running.post("/train", {"messages": json.loads(chat_line("over http?", "yes."))["messages"]})
    assert code == 202 and len(body["examples"]) == 1
    running.wait_learned(before + 1)
    code, again = running.post(
        "/train", {"examples": [json.loads(chat_line("over http?", "yes.")), {"text": "plain text"}]}
    )
    assert code == 202 and again["duplicates"] in (1, body["examples"]) and len(again["examples"]) == 1
    running.wait_learned(before + 2)
    code, status = running.get("/train/status")
    assert code == 200 and status["queue"]["pending"] == 0
    code, whole = running.get("/apollod/status")
    assert code == 200 and whole["schema_version"] == 1 and whole["weights"]["fingerprint"]


def test_one_scrape_tells_serving_and_learning(running):
    before = trained(running)
    running.drop("scraped.jsonl", chat_line("scraped?", "yes."))
    running.wait_learned(before + 1)
    status = running.wait(
        lambda s: s["weights"]["served"] == s["step"] and s["weights"]["alignment"], "the engine to be told"
    )
    time.sleep(FRESH_S)
    shown, after = scrape(running), running.status()  # it may have been measured anew between the two
    assert shown["apollod_up"] == 1 and shown['apollod_state{state="serving"}'] == 1
    assert shown["apollod_step"] == shown["apollod_weights_version_served"] == status["step"] > 0
    measured = [one["weights"]["alignment"]["mean_abs_diff"] for one in (status, after)]
    assert shown["apollod_alignment_mean_difference"] in measured
    assert shown['apollod_examples{state="trained"}'] == status["queue"]["trained"]
    assert shown["apollod_journal_seq"] >= status["journal"]["seq"]
    assert any(name.startswith("vllm:generation_tokens_total") for name in shown)


@pytest.mark.parametrize("body", [b"no json", b'{"messages": []}', b'{"examples": [{"a": 1}]}', b"[]"])
def test_a_bad_request_gets_an_error_and_a_hint(running, body):
    code, answer = running.post("/train", body)
    assert code == 400 and answer["error"] and answer["hint"]


def test_submit_checkpoint_and_replay_by_ctl(running, tmp_path):
    before = trained(running)
    file = tmp_path / "s.jsonl"
    file.write_text(
        chat_line("by hand?", "by hand.") + "\nnot json\n" + json.dumps({"prompt": "a b", "completion": " c"}) + "\n"
    )
    done = running.ctl("submit", str(file), "--json", "--wait")
    answer = json.loads(done.stdout)
    assert len(answer["examples"]) == 2 and [r["line"] for r in answer["rejected"]] == [2]
    assert "s.jsonl:2:" in done.stderr
    assert trained(running) == before + 2

    checkpoint = json.loads(running.ctl("checkpoint", "--json").stdout)
    status = running.status()
    assert checkpoint["fingerprint"] == status["weights"]["fingerprint"] == status["checkpoint"]["fingerprint"]
    assert checkpoint["step"] == status["step"] == status["checkpoint"]["step"]
    assert checkpoint["model_dir"] == str(running.model)
    files = list(running.model.glob("*.safetensors"))
    assert format_fingerprint(sum(file_fingerprint(f) for f in files) % 2**64) == checkpoint["fingerprint"]

    folded = json.loads(running.ctl("replay", "--json").stdout)
    live = running.status()
    assert live["weights"].pop("served") == live["weights"]["version"], "which only the engine knows"
    for key in ("step", "queue", "checkpoint", "weights", "optimizer"):
        assert folded[key] == live[key]
    early = json.loads(running.ctl("replay", "--to", "1", "--json").stdout)
    assert early["replayed"] == 1 and early["step"] == 0


def test_one_example_from_the_command_line_and_what_became_of_it(running, tmp_path):
    before = trained(running)
    given = ("--prompt", "as told on", "--completion", " the command line")
    answer = json.loads(running.ctl("train", *given, "--wait", "--json").stdout)
    (id_,) = answer["examples"]
    assert (answer["schema_version"], answer["duplicates"], answer["rejected"], answer["state"]) == (
        1,
        [],
        [],
        "trained",
    )
    assert trained(running) == before + 1
    shown = json.loads(running.ctl("example", "show", id_[:12], "--json").stdout)["example"]
    assert (shown["state"], shown["tier"], shown["source"], shown["line"]) == ("trained", "direct", "ctl:train", 1)
    assert shown["record"] == {"prompt": "as told on", "completion": " the command line"} and shown["steps"] == [
        shown["step"]
    ]
    assert running.ctl("train", *given).stdout == f"{id_} known already\n"
    messages = json.dumps(json.loads(chat_line("by hand, as JSON?", "yes,\nas JSON."))["messages"], indent=2)
    done = running.ctl("train", "--messages", messages, "--wait")
    assert done.stdout.endswith(" trained\n") and trained(running) == before + 2
    newest = json.loads(running.ctl("example", "list", "--limit", "2", "--jsonl").stdout.splitlines()[-1])
    assert newest["id"] == done.stdout.split()[0] and newest["record"]["messages"][1]["content"] == "yes,\nas JSON."
    long = running.ctl("train", "--prompt", "long?", "--completion", "so long " * 400, "--wait", check=False)
    assert (long.returncode, long.stdout.split()[1:]) == (1, ["rejected"])
    assert "max_tokens" in running.ctl("example", "show", long.stdout.split()[0]).stdout
    nothing = tmp_path / "empty.jsonl"
    nothing.touch()
    assert running.ctl("submit", str(nothing), "--wait").stdout == "0 accepted, 0 duplicates, 0 rejected\n"
    assert trained(running) == before + 2


def test_checkpoint_over_http_loads_in_transformers(running):
    code, answer = running.post("/checkpoint", {})
    assert code == 200, answer
    code = (
        "import sys; from apollod import foreign_wheels; foreign_wheels.guard();"
        "from transformers import AutoModelForCausalLM; m = AutoModelForCausalLM.from_pretrained(sys.argv[1]);"
        "print(sum(p.numel() for p in m.parameters()))"
    )
    _, text = said(code, answer["model_dir"])
    assert int(text.split()[-1]) == running.status()["weights"]["elements"], text[-500:]


def test_pause_serves_and_learns_nothing_and_resume_catches_up(running):
    before = running.status()
    running.ctl("pause")
    running.drop("paused.jsonl", chat_line("while paused?", "later."))
    status = running.wait(lambda s: s["queue"]["pending"] == 1, "the line to wait")
    assert status["state"] == "paused" and status["step"] == before["step"]
    running.logprob([1, 2, 3])
    running.ctl("resume")
    running.wait_learned(before["queue"]["trained"] + 1)


def test_events_and_query(running):
    rows = json.loads(running.ctl("query", "SELECT step, loss, fingerprint FROM steps ORDER BY step", "--json").stdout)[
        "rows"
    ]
    assert [r["step"] for r in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["fingerprint"] == running.status()["weights"]["fingerprint"]
    last = running.ctl("events", "--kind", "step.completed", "--limit", "1", "--jsonl").stdout.splitlines()
    assert len(last) == 1 and json.loads(last[0])["body"]["step"] == rows[-1]["step"]
    assert running.ctl("query", "SELECT 1 AS one, 'a' AS b", "--csv").stdout.split() == ["one,b", "1,a"]
    for bad in ("DELETE FROM events", "ATTACH 'x' AS y", "PRAGMA journal_mode", "SELECT nothing FROM nowhere"):
        done = running.ctl("query", bad, check=False)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
    done = running.ctl("events", "--kind", "step.complete", check=False)
    assert done.returncode == 2 and "step.completed" in done.stderr
    assert running.ctl("journal", "verify").stdout.startswith("ok:")


def test_what_was_learned_is_explained_by_sql(running):
    """From a step to the example, its file and line."""
    rows = running.query(
        "SELECT s.step, e.id, q.path, e.line FROM steps s JOIN examples e ON e.id = s.example JOIN sources q ON "
        "q.source = e.source "
        "WHERE q.path LIKE '%learn.jsonl' ORDER BY e.line"
    )
    assert [r[3] for r in rows] == list(range(1, 13))


BAD_LINES = {
    "not json": (b"this is not json", "JSON"),
    "not utf-8": (b'{"text": "\xff\xfe"}', "UTF-8"),
    "unknown shape": (b'{"question": "a", "answer": "b"}', "messages"),
    "empty assistant turn": (
        b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""}]}',
        "empty",
    ),
    "no target": (
        b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":0}]}',
        "target",
    ),
    "an array": (b"[1, 2]", "object"),
    "not a number": (b'{"text": NaN}', ""),
}


def test_bad_lines_are_kept_named_and_cost_nothing_else(running):
    before = running.status()["queue"]
    lines = [bad for bad, _ in BAD_LINES.values()]
    good = [chat_line(f"good {i}?", f"good {i}.").encode() for i in range(len(lines) + 1)]
    mixed = [line for pair in zip(good, lines, strict=False) for line in pair] + [good[-1]]
    (running.inbox / ".bad.part").write_bytes(b"\n".join(mixed) + b"\n")
    (running.inbox / ".bad.part").rename(running.inbox / "bad.jsonl")
    after = running.wait_learned(before["trained"] + len(good))
    assert after["queue"]["rejected"] == before["rejected"] + len(lines)
    rows = running.query(
        "SELECT json_extract(body, '$.line'), json_extract(body, '$.reason'), json_extract(body, '$.kept') FROM events "
        "WHERE kind = 'source.quarantined' AND json_extract(body, '$.path') LIKE '%/bad.jsonl' ORDER BY seq"
    )
    assert [r[0] for r in rows] == [2 * i + 2 for i in range(len(lines))]
    for (_, reason, kept), (bad, word) in zip(rows, BAD_LINES.values(), strict=True):
        assert word.casefold() in reason.casefold() and "\n" not in reason
        stored = Path(kept) if Path(kept).is_absolute() else running.root / "state" / "quarantine" / kept
        assert stored.read_bytes().strip() == bad


NUMBERS = " ".join(map(str, range(600)))  # unlike any other long answer here


def test_an_answer_longer_than_max_tokens_is_rejected_and_a_long_prompt_is_shortened(running):
    before = running.status()["queue"]
    running.drop("long.jsonl", chat_line("short?", NUMBERS), chat_line("so long " * 400, "short."))
    after = running.wait_learned(before["trained"] + 1)
    assert after["queue"]["rejected"] == before["rejected"] + 1
    reason = running.query("SELECT json_extract(body, '$.reason') FROM events WHERE kind = 'example.rejected'")[-1][0]
    assert "max_tokens" in reason and "256" in reason
    shortened, cut, tokens = running.query(
        "SELECT body ->> '$.changes.shortened', body ->> '$.cut', body ->> '$.tokens' FROM events WHERE kind = "
        "'example.encoded' ORDER BY seq"
    )[-1]
    assert (shortened, cut) == (1, 0) and 200 < tokens <= 256


def test_the_same_line_twice_and_a_file_under_two_names(running):
    before = running.status()["queue"]
    line = chat_line("twice?", "once.")
    running.drop("twice.jsonl", line, line)
    running.drop("copy.jsonl", line)
    after = running.wait(lambda s: s["queue"]["duplicates"] == before["duplicates"] + 2, "duplicates counted")
    running.wait_learned(before["trained"] + 1)
    assert after["queue"]["accepted"] == before["accepted"] + 1


def test_a_file_appended_in_place_and_a_torn_last_line(running):
    before = trained(running)
    with open(running.inbox / "grows.jsonl", "w") as f:
        f.write(chat_line("grows?", "one.") + "\n" + chat_line("torn?", "not yet.")[:20])
        f.flush()
        running.wait_learned(before + 1)
        f.write(chat_line("torn?", "not yet.")[20:] + "\n")
    running.wait_learned(before + 2)


def test_a_huge_line_is_set_aside_and_the_next_one_learned(running):
    before = running.status()["queue"]
    with open(running.inbox / ".huge.part", "wb") as f:
        f.write(
            b'{"text": "'
            + b"x" * (50 << 20)
            + b'"}\n'
            + chat_line("after the huge one?", "yes, after.").encode()
            + b"\n"
        )
    (running.inbox / ".huge.part").rename(running.inbox / "huge.jsonl")
    after = running.wait_learned(before["trained"] + 1)
    assert after["queue"]["rejected"] == before["rejected"] + 1
    (running.inbox / "huge.jsonl").unlink()


def test_a_second_daemon_on_the_same_state_is_refused_with_the_pid_of_the_first(running):
    done = subprocess.run(
        [sys.executable, "-m", "apollod", "run", "--config", str(running.config)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and str(running.process.pid) in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert running.status()["engine"]["ready"]


def test_prompts_are_answered_while_steps_run(running):
    before = trained(running)
    running.drop("busy.jsonl", *[chat_line(f"busy {i}?", f"still {i}.") for i in range(20)])
    answered = 0
    while trained(running) < before + 20:
        code, body = running.post(
            "/v1/chat/completions",
            {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0},
        )
        assert code == 200 and body["choices"]
        answered += 1
    assert answered > 0
