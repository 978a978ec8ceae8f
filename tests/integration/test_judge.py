"""The judge over real HTTP: real loop, journal and client, an endpoint with every misbehaviour, a kill in between."""

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.from_thread
import msgspec
import pytest
from support import llm_server as behave
from support.daemon import Daemon, chat_line
from support.judge_server import asked_about, by_words, completion, judging, verdict
from support.llm_server import Behaviour, LlmServer, serving

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.adapters.llm.client import side_by_side
from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core import schedules
from apollod.core.facts.judging.state import distrust
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor import Executor, judging_effects
from apollod.supervisor.judge import Judge
from apollod.supervisor.loop import Loop
from apollod.testing.daemon import free_port
from apollod.wire.records import Record, record_of

KEY = "sk-never-to-be-seen"
NONE = cast(Any, None)


PORT = free_port()
"""Of the judge in every life of a journal: another endpoint would have to earn trust anew."""


def slowly(seconds: float) -> Behaviour:
    """A judge by words that takes so long."""

    async def late(server: LlmServer, stream: Any, request: Any) -> None:
        await anyio.sleep(seconds)
        await judging(by_words)(server, stream, request)

    return late


class OnlyTheJudge(Executor):
    """A daemon without children: what a judge lets through is not learned, it waits for that."""

    async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
        return await super().run(effect) if isinstance(effect, fx.AskJudge) else ()


def config_of(state: Path, url: str, *more: str) -> Config:
    judge = [f"judge.{one}" for one in ("mode=all", "endpoint=other", "votes=1", *more)]
    endpoint = [f"endpoint.other.{one}" for one in (f"base_url={url}", "model=judge", f"api_key={KEY}")]
    return load_config(None, ["model.path=/m", f"state.dir={state}", *endpoint, *judge], {})


class Life:
    """A daemon's life as far as a judge is concerned."""

    def __init__(self, config: Config, loop: Loop) -> None:
        self.config, self.loop = config, loop

    @property
    def state(self) -> State:
        return self.loop.state

    async def lines(self, *answers: str) -> list[str]:
        """Examples as of a file; their ids."""
        lines = [chat_line(f"What about {answer}?", answer).encode() for answer in answers]
        batch = batch_of_lines(lines, "file", self.config.state_dir / "quarantine")
        await self.loop.submit(inp.LinesRead(msgspec.structs.replace(batch, tier="bulk"), frozenset()))
        return [line.example for line in batch.lines]

    async def until(self, what: Callable[[], object]) -> None:
        with anyio.fail_after(120):
            while not what():
                await anyio.sleep(0.003)

    async def settled(self) -> None:
        """Nothing waits for the judge, and nothing is asked."""
        await self.until(lambda: not self.state.judging.waiting and not self.state.judging.open)


@asynccontextmanager
async def life(config: Config) -> AsyncIterator[Life]:
    """Ends as by a kill: nobody is told, nothing is recorded."""
    config.state_dir.mkdir(exist_ok=True)
    judge = Judge(config)
    journal = await Journal.open(config.journal_path)
    try:
        state = State()
        for item, _ in journal_reader.recorded(config.journal_path):
            fold(state, item)
        loop = Loop(state, journal)
        async with anyio.create_task_group() as tasks:
            executor = OnlyTheJudge(config, journal, NONE, loop.post, loop.submit, tasks, judge, Dreamer(config))
            loop.post(inp.Started(1, "test", config.settings(), str(config.state_dir), judge=judge.configured()))
            tasks.start_soon(loop.run, executor)
            tasks.start_soon(judge.keep_connected)

            async def tick() -> None:
                while True:
                    await loop.submit(inp.Tick())
                    await anyio.sleep(0.01)

            tasks.start_soon(tick)
            yield Life(config, loop)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()


def run(main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "BACKOFF_FIRST_S", 0.02)


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal whose judge was right about all planted cases."""
    path = tmp_path_factory.mktemp("trusting") / "state"

    async def calibrate() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(by_words)
            async with life(config_of(path, server.url)) as one:
                await one.until(lambda: one.state.judging.ready and not one.state.judging.due)
                assert distrust(one.state.judging, 0.8) == "" and len(server.requests) == 39

    run(calibrate)
    return path


@pytest.fixture
def state(trusting: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trusting, tmp_path / "state"))


def states(path: Path) -> dict[str, str]:
    return dict(journal_reader.query(path / "journal.db", "SELECT id, state FROM examples").rows)


def reasons(one: Life) -> dict[str, tuple[str, str]]:
    return {id_: (held.waits_for, held.reason) for id_, held in one.state.review.held.items()}


def test_verdicts_over_http(state: Path) -> None:
    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(by_words)
            async with life(config_of(state, server.url, "votes=2")) as one:
                good, bad, unsure, better = await one.lines("good one", "bad one", "unsure one", "better one")
                await one.settled()
                assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
                assert asked_about(server, "bad one") == 2
                found = states(state)
                (written,) = found.keys() - {good, bad, unsure, better}
                assert [found[one] for one in (good, bad, unsure, better, written)] == [
                    "pending", "declined", "held", "declined", "pending"
                ]  # fmt: skip
                assert [waiting.example for waiting in one.state.intake.bulk.waiting] == [good, written]
        sql = 'SELECT verdict, quote, better, "into", votes, model, weights_version, prompt_tokens FROM verdicts '
        rows = journal_reader.query(state / "journal.db", f"{sql} WHERE example IS NOT NULL ORDER BY seq").rows
        assert rows[3] == (
            "bad", "better one", "a much improved answer", written, '["bad","bad"]', "judge", 7, 200
        )  # fmt: skip
        record = journal_reader.query(state / "journal.db", f"SELECT record FROM examples WHERE id = '{written}'").rows
        assert [turn["content"] for turn in json.loads(record[0][0])["messages"]] == [
            "What about better one?", "a much improved answer"
        ]  # fmt: skip

    run(main)


MISBEHAVIOURS: dict[str, tuple[str | Behaviour, str, int]] = {
    "prose": ("I like this answer a lot.", "this is no verdict", 2),
    "another form": ('{"score": 5}', "this is no verdict", 2),
    "nothing": ("", "this is no verdict", 2),
    "a quote that is not there": (verdict("good", "something else"), "is not in what was judged", 2),
    "a quote of the question": (verdict("good", "What about"), "is not in what was judged", 2),
    "no quote": (verdict("bad", ""), "quotes nothing", 2),
    "an empty better answer": (verdict("bad", "an answer", " "), "is empty", 2),
    "the same again": (verdict("bad", "an answer", "an  answer"), "the one that is called bad", 2),
    "cut off": (behave.answers(completion('{"quote": "an', "length")), "cut off", 2),
    "HTML": (behave.answers(b"<html>502</html>"), "not what was asked for", 2),
    "no choice": (behave.answers({"choices": []}), "0 came", 2),
    "500": (behave.answers({"error": {"message": "out of memory"}}, 500), "out of memory", 2),
    "a refused key": (behave.answers({"error": {"message": f"bad key {KEY}"}}, 401), "bad key [key]", 2),
    "too long": (behave.answers({"error": {"message": "maximum context length"}}, 400), "maximum context", 1),
    "slow": (behave.slow_headers, "gave no whole answer within 1 s", 2),
    "slow to end": (behave.slow_body, "gave no whole answer within 1 s", 2),
    "hangs up": (behave.closes_at_once, "did not answer", 2),
    "no HTTP": (behave.not_http, "did not answer", 2),
}


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_misbehaviour_ends_with_a_person_and_nothing_learned(
    name: str, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said, why, times = MISBEHAVIOURS[name]

    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(lambda judged: said)
            timeout = f"timeout_s={1 if name.startswith('slow') else 20}"
            async with life(config_of(state, server.url, "attempts=2", timeout)) as one:
                (example,) = await one.lines("an answer")
                await one.settled()
                who, reason = reasons(one)[example]
                assert who == "person" and why in reason, reason
                assert asked_about(server, "an answer") == times
                assert one.state.intake.pending == 0

    run(main)
    out, err = capfd.readouterr()
    kept = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert KEY.encode() not in kept and KEY not in out + err and len(kept) > 10_000


def test_a_bug_of_ours_in_judging_an_example_ends_with_a_person_and_not_the_daemon(
    state: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    written = judging_effects.better_record

    def breaks(record: bytes, better: str) -> Record | None:
        if "worse" in better:
            raise KeyError(better)
        return written(record, better)

    monkeypatch.setattr(judging_effects, "better_record", breaks)

    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(
                lambda judged: verdict("bad", judged, "a worse answer" if judged == "an answer" else None)
            )
            async with life(config_of(state, server.url, "attempts=2")) as one:
                broken, other = await one.lines("an answer", "another")
                await one.settled()
                who, reason = reasons(one)[broken]
                assert who == "person" and "gave no verdict: KeyError: 'a worse answer'" in reason
                assert asked_about(server, "an answer") == 2 and states(state)[other] == "declined"

    run(main)
    out, err = capfd.readouterr()
    assert "judge.call_broke" in out + err


def test_nobody_there_at_all(state: Path) -> None:
    async def main() -> None:
        async with life(config_of(state, "http://127.0.0.1:1/v1", "attempts=2")) as one:
            examples = await one.lines("a", "b", "c")
            await one.settled()
            assert all("did not answer" in reasons(one)[example][1] for example in examples)

    run(main)


def test_the_key_is_taken_out_of_what_a_judge_says(state: Path) -> None:
    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(lambda judged: verdict("bad", judged, f"use {KEY}", f"I know {KEY}"))
            async with life(config_of(state, server.url)) as one:
                await one.lines("an answer")
                await one.until(lambda: one.state.judging.verdicts == 1)

    run(main)
    kept = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert KEY.encode() not in kept and b"I know [key]" in kept and b"use [key]" in kept


def test_one_that_always_says_yes_is_never_trusted(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(lambda judged: verdict("good", judged), planted=lambda expected: "good")
            async with life(config_of(tmp_path / "state", server.url)) as one:
                (example,) = await one.lines("an answer")
                await one.settled()
                who, reason = reasons(one)[example]
                assert who == "person" and "the judge says good: because; it is not trusted: agreement 0.50" in reason
                assert one.state.intake.pending == 0

    run(main)


def test_votes_that_differ(state: Path) -> None:
    async def main() -> None:
        async with serving(port=PORT) as server:
            said = ["good", "bad"] * 5
            server.otherwise = judging(lambda judged: verdict(said.pop(0), judged))
            async with life(config_of(state, server.url, "votes=3")) as one:
                (example,) = await one.lines("an answer")
                await one.settled()
                assert reasons(one)[example] == ("person", "the judge is not sure (good, bad, good): because")

    run(main)


@pytest.mark.parametrize(
    "own, dreamt, at_once", [(True, [True], 3), (True, [False], 1), (False, [True], 1), (False, [True, False], 1)]
)
def test_votes_on_what_is_dreamt_do_not_wait_for_each_other(
    state: Path, own: bool, dreamt: list[bool], at_once: int
) -> None:
    """At our own engine, which nobody else uses then; else one at a time, as [judge] concurrency says."""

    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = slowly(0.1)
            ours = ["model.path=/m", f"state.dir={state}", "judge.mode=all", f"engine.port={server.port}"]
            judge = Judge(load_config(None, ours, {}) if own else config_of(state, server.url), by_daemon=True)
            said = [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "good"}]
            record = record_of({"messages": said}).canonical
            asked = [partial(judge.ask, record, 3, 0.7, dreamt=one) for one in dreamt]
            for judged in await side_by_side(asked):
                assert [vote.verdict for vote in judged.votes] == ["good"] * 3
            await judge.close()
            assert server.most_active == at_once

    run(main)


def test_what_a_person_approved_is_asked_about_with_a_change(state: Path) -> None:
    async def main_() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(by_words)
            async with life(config_of(state, server.url, "check_every=1")) as one:
                long = "good one, " + "which says at some length what there is to say about this question, " * 3
                (example,) = await one.lines(f"unsure {long}")
                await one.settled()
                await one.loop.submit(inp.DecisionsGiven((inp.Decision(example, "approve", "yes"),), "me"))
                await one.lines("good two")
                await one.until(lambda: any("changed:" in e for e in one.state.judging.attempts) or asked(server))
                (transcript,) = asked(server)
                judged = transcript.partition("to be judged")[2]
                assert long[:30] in judged and long.strip() not in judged

    def asked(server: Any) -> list[str]:
        texts = [request.body["messages"][1]["content"] for request in server.requests]
        return [text for text in texts if "What about unsure" in text][1:]

    run(main_)


def test_a_kill_while_it_thinks_asks_once_more_and_delays_nobody(state: Path) -> None:
    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = judging(lambda judged: behave.slow_headers)
            async with life(config_of(state, server.url)) as one:
                examples = await one.lines("an answer", "another")
                await one.until(lambda: server.active)
                with anyio.fail_after(20):  # the loop takes inputs meanwhile
                    await one.loop.submit(inp.DecisionsGiven((inp.Decision(examples[1], "decline"),), "p"))
            await one.until(lambda: not server.active)
            server.otherwise = judging(by_words)
            async with life(config_of(state, server.url)) as one:
                await one.settled()
                assert asked_about(server, "an answer") == 2 and asked_about(server, "another") == 0
                assert states(state) == {examples[0]: "pending", examples[1]: "declined"}
        sql = "SELECT kind, body ->> '$.attempt' FROM events WHERE kind GLOB 'verdict.*' AND key = '{}' ORDER BY seq"
        assert journal_reader.query(state / "journal.db", sql.format(examples[0])).rows == [
            ("verdict.requested", 1), ("verdict.failed", 1), ("verdict.requested", 2), ("verdict.given", 2),
        ]  # fmt: skip

    run(main)


def test_no_more_requests_at_once_than_concurrency(state: Path) -> None:
    async def main() -> None:
        async with serving(port=PORT) as server:
            server.otherwise = slowly(0.02)
            async with life(config_of(state, server.url, "concurrency=2", "votes=2")) as one:
                await one.lines(*(f"answer {n}" for n in range(8)))
                await one.settled()
                assert server.most_active == 2

    run(main)


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Any:
    """A server in a thread of its own, for what brings an event loop of its own."""
    with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(serving()) as server:
        server.otherwise = judging(by_words)
        yield server


def toml(tmp_path: Path, server: LlmServer, more: str = "") -> str:
    file = tmp_path / "a.toml"
    judge = f'[judge]\nmode = "all"\nbase_url = "{server.url}"\nmodel = "judge"\napi_key = "{KEY}"\nvotes = 1\n{more}'
    file.write_text(f'[model]\npath = "/m"\n[state]\ndir = "{tmp_path}/state"\n{judge}')
    return str(file)


def test_judge_test_asks_about_every_case_and_says_whether_it_would_be_trusted(
    tmp_path: Path, endpoint: LlmServer, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.jsonl"
    config = toml(tmp_path, endpoint, f'cases = ["{own}"]\nconcurrency = 4\n')
    own.write_text(chat_line("q", "good, this")[:-1] + ', "expect": "good", "about": "mine"}\n')
    assert main(["ctl", "judge", "test", "--config", config, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema_version"], told["passed"], told["agreement"], len(told["cases"])) == (1, True, 1.0, 40)
    assert told["cases"][-1]["about"] == "mine" and told["cases"][-1]["place"] == f"{own}:1"
    endpoint.otherwise = judging(by_words, planted=lambda expected: "good")
    assert main(["ctl", "judge", "test", "--config", config]) == 1
    out = capsys.readouterr().out
    assert "agreement 0.50" in out and "its verdicts would wait for a person" in out and out.count("wrong") == 23
    assert KEY not in out


def test_judge_test_says_what_is_wrong_with_an_endpoint_or_a_case(
    tmp_path: Path, endpoint: LlmServer, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.otherwise = behave.answers({"error": {"message": f"bad key {KEY}"}}, 401)
    config = toml(tmp_path, endpoint)
    assert main(["ctl", "judge", "test", "--config", config]) == 1
    err = capsys.readouterr().err
    assert "answered 401: bad key [key]; check the API key" in err and len(endpoint.requests) == 3
    for more, words in ((f'cases = ["{tmp_path}/none.jsonl"]', "none.jsonl cannot be read"), ("", "give --config")):
        options = ["--config", toml(tmp_path, endpoint, more)] if more else ["--socket", "/none"]
        assert main(["ctl", "judge", "test", *options]) == 2
        assert words in capsys.readouterr().err
    assert main(["config", "show", "--config", config]) == main(["config", "show", "--json", "--config", config]) == 0
    assert KEY not in capsys.readouterr().out


def test_judge_show_of_a_copy(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main_() -> None:
        async with serving(port=PORT) as server:
            slips = iter(["unsure"])
            server.otherwise = judging(by_words, planted=lambda expected: next(slips, expected))
            async with life(config_of(state, server.url, "check_every=1")) as one:
                (example,) = await one.lines("good one")
                await one.settled()
                await one.loop.submit(inp.DecisionsGiven((inp.Decision(example, "decline", "no"),), "me"))
                await one.lines("bad one")
                await one.settled()
                await one.until(lambda: one.state.judging.turns and not one.state.judging.open)

    run(main_)
    copy = str(state / "journal.db")
    capsys.readouterr()
    assert main(["ctl", "judge", "show", "--file", copy, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["said"] == {"bad": 1, "good": 1} and told["good"] + told["bad"] >= 16 + 23 + 2
    assert [(w["said"], w["about"]) if "said" in w else (w["verdict"], w["about"]) for w in told["wrong"]] == [
        ("unsure", "instruction")
    ]
    assert [(o["verdict"], o["decision"], o["by"]) for o in told["otherwise"]] == [("good", "declined", "me")]
    assert main(["ctl", "judge", "show", "--file", copy]) == 0
    out = capsys.readouterr().out
    assert "judge       judge on all: trusted" in out and "planted cases that it got wrong" in out
    assert "where a person decided otherwise" in out


# --- the whole daemon ------------------------------------------------------------------------------------------------


def test_a_daemon_learns_what_its_judge_lets_through(tiny_model: Path, tmp_path: Path, endpoint: LlmServer) -> None:
    extra = f'[judge]\nmode = "all"\nbase_url = "{endpoint.url}"\nmodel = "judge"\napi_key = "{KEY}"\nvotes = 1\n'
    daemon = Daemon(tmp_path / "d", tiny_model, extra).start()
    try:
        daemon.wait_ready()
        daemon.drop("a.jsonl", *(chat_line(f"What about {a}?", a) for a in ("good one", "bad one", "better one")))
        judge = daemon.wait_learned(2)["judge"]
        assert (judge["trusted"], judge["good"], judge["verdicts"], judge["waiting"]) == (True, 16, 4, 0)
        rows = daemon.query("SELECT id, state, source, record FROM examples ORDER BY seq")
        assert [(state, "much improved" in record) for _, state, _, record in rows] == [
            ("trained", False), ("declined", False), ("declined", False), ("trained", True)
        ]  # fmt: skip
        assert rows[3][2] == f"judge:{rows[2][0]}"
        why = "".join(daemon.ctl("why", rows[at][0][:12]).stdout for at in (0, 1, 3))
        assert why.count("because     verdict.given") == 4, "that of the answer it was made of, too"
        assert why.count("because     example.approved") == 2 and "declined by judge: because" in why
        shown = json.loads(daemon.ctl("judge", "show", "--json").stdout)
        assert shown["said"] == {"bad": 2, "good": 2} and shown["trusted"] and shown["wrong"] == []
        told = daemon.ctl("status").stdout + daemon.ctl("status", "--json").stdout + why
        assert "judge       judge on all, trusted, agreement 1.00" in told
    finally:
        daemon.end()
    files = [path for path in daemon.root.rglob("*") if path.is_file() and path != daemon.config]
    assert KEY not in told and not [path for path in files if KEY.encode() in path.read_bytes()]
