"""Publishing with a real engine: pauses that end whatever happens, prefixes of older weights, versions in responses."""

import itertools
import json
import os
import random
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from support.daemon import STUB, VLLM, Daemon, chat_line, dead_within
from support.engine_host import Engine
from support.invariants import check_stopped, journal_of
from support.planted import ARGUMENTS, PATH
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.core import events as ev
from apollod.core.facts.alignment import NOTHING, TOKENS
from apollod.engine.load.bits import checkpoint_tensors
from apollod.engine.refresh import RETRY_S
from apollod.trainer.scoring import PROBE_TEXT, score
from apollod.wire import messages as msg

pytestmark = pytest.mark.engine

HEADER = "x-apollod-weights-version"
PREFIX = random.Random(0).choices(range(3, 800), k=160)  # five blocks of the dense model's prefix cache
STALE = 0.1  # of a log-probability; the same weights twice differ by less than NOISE
NOISE = 0.02


@pytest.fixture(scope="module")
def dense(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 with the tiny model's tokenizer. Its prefixes are cached in blocks of 32 tokens; those of the tiny
    model, whose other layers keep one large state, in blocks of 640."""
    path = tmp_path_factory.mktemp("model") / "dense"
    shutil.copytree(
        tiny_model, path, ignore=shutil.ignore_patterns("*.safetensors", "config.json", "generation_config.json")
    )
    vocabulary = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=64, max_position_embeddings=2048, initializer_range=0.08,
            tie_word_embeddings=False,
        )
    ).to(torch.bfloat16).save_pretrained(path)  # fmt: skip
    return path


@pytest.fixture(scope="module")
def serving(dense: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    running = Engine(tmp_path_factory.mktemp("e"), dense, "--enable-prefix-caching", "--block-size", "32")
    try:
        yield running.wait_ready()
    finally:
        running.close()


@pytest.fixture
def engine(serving: Engine, dense: Path) -> Iterator[Engine]:
    """The checkpoint's weights before and after, nothing cached, nothing salted."""
    yield serving
    if serving.host.deserted:
        return
    for name, tensor in checkpoint_tensors(dense):
        serving.host.view(serving.host.entry(name)).copy_(tensor)
    assert not serving.host.refresh(0).error


def complete(engine: Engine, tokens: int = 1, **more: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers of a greedy completion with log-probabilities."""
    body = {
        "model": "tiny",
        "prompt": PREFIX,
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": 1,
        "ignore_eos": True,
        **more,
    }
    request = urllib.request.Request(
        engine.url("/v1/completions"), json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer), {k.lower(): v for k, v in answer.headers.items()}


def metric(engine: Engine, name: str) -> float:
    """A counter of vLLM's since the start, over all its labels."""
    with urllib.request.urlopen(engine.url("/metrics"), timeout=60) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(f"vllm:{name}_total")]
    assert lines, f"vLLM has no counter {name}"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def cached_tokens(engine: Engine) -> float:
    """Tokens found in the prefix cache."""
    return metric(engine, "prefix_cache_hits")


def top(answer: dict[str, Any]) -> tuple[str, float]:
    logprobs = answer["choices"][0]["logprobs"]
    return logprobs["tokens"][0], logprobs["token_logprobs"][0]


def change(engine: Engine) -> None:
    """Other weights: the embedding's rows in another order."""
    view = engine.host.view(engine.host.entry("model.embed_tokens.weight"))
    view.copy_(view.roll(7, 0))


@pytest.mark.parametrize("policy", ["keep", "reset", "salt"])
def test_only_keep_answers_from_prefixes_of_older_weights(engine: Engine, policy: str) -> None:
    assert engine.host.refresh(1, policy).error == ""
    complete(engine)
    hits = cached_tokens(engine)
    before = complete(engine)[0]
    assert cached_tokens(engine) > hits, "the prefix is not cached: this test would show nothing"
    change(engine)
    assert engine.host.refresh(2, policy).error == ""
    hits = cached_tokens(engine)
    after = complete(engine)[0]
    found = cached_tokens(engine) - hits
    fresh = complete(engine, cache_salt=f"fresh {policy}")[0]  # the same weights, nothing cached under this salt
    differs = top(after)[0] != top(fresh)[0] or abs(top(after)[1] - top(fresh)[1]) > STALE
    if policy == "keep":
        assert found > 0 and differs, (found, top(after), top(fresh))
    else:
        assert found == 0 and not differs and abs(top(after)[1] - top(fresh)[1]) < NOISE
        assert top(before) != top(after)


def test_scoring_the_probe_never_reads_a_prefix_of_older_weights(engine: Engine, dense: Path) -> None:
    """What alignment rests on where prefixes are kept: vLLM computes all of a prompt whose log-probabilities are
    asked for."""
    tokenizer, model = (
        AutoTokenizer.from_pretrained(dense),
        Qwen3ForCausalLM.from_pretrained(dense, dtype=torch.bfloat16),
    )
    ids = tuple(tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"])[:TOKENS]

    def generated(**more: Any) -> tuple[float, tuple[str, float]]:
        """Tokens that came from the cache, and the first new one."""
        hits = cached_tokens(engine)
        answer = complete(engine, prompt=list(ids), **more)[0]
        return cached_tokens(engine) - hits, top(answer)

    def mean_difference() -> float:
        async def ask() -> tuple[float, ...]:
            async with HttpLlm(Endpoint(engine.url("/v1"), "tiny")) as llm:
                return (await llm.score(ids)).logprobs

        scored = anyio.run(ask)
        differences = [abs(a - b) for a, b in zip(scored, score(model, ids), strict=True)]
        assert len(differences) == len(ids) - 1 > 200
        return sum(differences) / len(differences)

    assert engine.host.refresh(1, "keep").error == ""
    generated()
    assert generated()[0] > 0, "the probe is not cached: this test would show nothing"
    assert mean_difference() < NOISE
    change(engine)
    assert engine.host.refresh(2, "keep").error == ""
    assert mean_difference() > STALE, "the step changed too little: this test would show nothing"
    model.model.embed_tokens.weight.data = model.model.embed_tokens.weight.data.roll(7, 0)
    (found, stale), (_, fresh) = generated(), generated(cache_salt="fresh")
    assert found > 0 and (stale[0] != fresh[0] or abs(stale[1] - fresh[1]) > STALE), (found, stale, fresh)
    hits = cached_tokens(engine)
    assert mean_difference() < NOISE and cached_tokens(engine) == hits


def test_a_clients_own_salt_is_kept_apart_and_renewed_too(engine: Engine) -> None:
    engine.host.refresh(1, "salt")
    complete(engine, cache_salt="alice")
    hits = cached_tokens(engine)
    complete(engine, cache_salt="bob")
    assert cached_tokens(engine) == hits
    complete(engine, cache_salt="alice")
    assert cached_tokens(engine) > hits
    hits = cached_tokens(engine)
    engine.host.refresh(2, "salt")
    complete(engine, cache_salt="alice")
    assert cached_tokens(engine) == hits
    with pytest.raises(urllib.error.HTTPError, match="400"):
        complete(engine, cache_salt="")


class Clients:
    """Closed-loop clients that keep the engine busy: each asks for another number of tokens, so that they do not end
    together. `answers`: (number of tokens, log-probabilities as the API gives them) of what came whole."""

    def __init__(self, engine: Engine | Daemon, tokens: int = 400, count: int = 2) -> None:
        self.url = f"http://127.0.0.1:{engine.port}/v1/completions"
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.errors: list[Exception] = []
        self.done = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(tokens - 37 * i,)) for i in range(count)]

    def __enter__(self) -> "Clients":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors

    def _run(self, tokens: int) -> None:
        body = {"model": "tiny", "prompt": PREFIX[:32], "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body |= {"logprobs": 2, "return_tokens_as_token_ids": True}
        while not self.done.is_set():
            request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    self.answers.append((tokens, json.load(answer)["choices"][0]["logprobs"]))
            except OSError as error:
                self.errors.append(error)
                return

    def wait(self, count: int, timeout_s: float = 60) -> None:
        """Until so many more answers have come."""
        wanted, deadline = len(self.answers) + count, time.monotonic() + timeout_s
        while len(self.answers) < wanted:
            assert time.monotonic() < deadline and not self.errors, (len(self.answers), wanted, self.errors)
            time.sleep(0.02)


def resets(engine: Engine) -> int:
    """How often vLLM has dropped the whole cache."""
    return engine.log.read_text(errors="replace").count("Successfully reset prefix cache")


def test_prefixes_are_forgotten_on_a_server_that_is_never_idle(engine: Engine) -> None:
    """Overlapping long requests hold blocks all the time; they are preempted in the end, and lose no token by that."""
    engine.host.refresh(1, "reset")
    complete(engine)
    with Clients(engine, tokens=400, count=3) as clients:
        clients.wait(1)
        before, preempted, deadline = resets(engine), metric(engine, "num_preemptions"), time.monotonic() + 30
        engine.host.refresh(2, "reset")
        while resets(engine) == before and time.monotonic() < deadline:
            time.sleep(0.2)
        assert resets(engine) > before, "never idle, never reset"
        clients.wait(6)
    assert metric(engine, "num_preemptions") > preempted
    for tokens, answer in clients.answers:
        assert len(answer["tokens"]) == tokens, "a preemption lost tokens"
        first = next(other for asked, other in clients.answers if asked == tokens)
        assert_same_up_to_rounding(first, answer)


def assert_same_up_to_rounding(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two greedy answers are the same, or part where two tokens are equally probable: what was computed again after a
    preemption came by other kernels (a prompt's instead of decoding's), which round differently on some processors."""
    for number, (a, b) in enumerate(zip(one["tokens"], other["tokens"], strict=True)):
        if a == b:
            assert abs(one["token_logprobs"][number] - other["token_logprobs"][number]) < NOISE, number
            continue
        for ours, theirs, answer in ((a, b, one), (b, a, other)):
            likely = answer["top_logprobs"][number]
            assert theirs in likely and likely[ours] - likely[theirs] < NOISE, (number, likely, theirs)
        return


def test_a_busy_server_answers_from_the_version_that_it_names(engine: Engine) -> None:
    """By default and before anything was dropped; first after a step, then after the rollback of it."""
    engine.host.refresh(1, "reset")
    with Clients(engine, tokens=400, count=3) as clients:
        clients.wait(1)
        first = complete(engine)[0]
        hits = cached_tokens(engine)
        assert top(complete(engine)[0]) == top(first)
        assert cached_tokens(engine) - hits >= len(PREFIX) - 32, (
            "the prefix is not cached: this test would show nothing"
        )
        change(engine)
        before = resets(engine)
        assert engine.host.refresh(2, "reset").error == ""
        answer, headers = complete(engine)
        dropped = resets(engine)
        fresh = complete(engine, cache_salt="fresh")[0]
        assert dropped == before, "the server was idle: this test shows nothing"
        assert headers[HEADER] == "2"
        assert top(answer)[0] == top(fresh)[0] and abs(top(answer)[1] - top(fresh)[1]) < NOISE, (
            top(answer),
            top(fresh),
        )
        assert top(answer)[0] != top(first)[0] or abs(top(answer)[1] - top(first)[1]) > STALE
        view = engine.host.view(engine.host.entry("model.embed_tokens.weight"))
        view.copy_(view.roll(-7, 0))
        assert engine.host.refresh(1, "reset").error == ""
        again, headers = complete(engine)
        assert headers[HEADER] == "1" and resets(engine) > before, "a rollback drops at once"
        assert top(again)[0] == top(first)[0] and abs(top(again)[1] - top(first)[1]) < NOISE


@contextmanager
def stream(engine: Engine | Daemon, tokens: int) -> Iterator[Any]:
    body = {
        "model": "tiny",
        "prompt": PREFIX[:32],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    url = f"http://127.0.0.1:{engine.port}/v1/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        yield answer


def idle(engine: Engine) -> None:
    """Wait until no drop of prefixes is due any more, which would preempt what runs; on an idle engine it ends."""
    assert not engine.host.refresh(1).error
    time.sleep(RETRY_S + 0.5)


def test_a_pause_holds_requests_between_two_tokens_and_loses_none(engine: Engine) -> None:
    idle(engine)
    whole = complete(engine, tokens=200, prompt=PREFIX[:32])[0]["choices"][0]["text"]
    before = metric(engine, "num_preemptions")
    with stream(engine, 200) as answer:
        text, times = "", []
        for number, line in enumerate(line for line in answer if line.startswith(b"data: {")):
            text += json.loads(line[6:])["choices"][0]["text"]
            times.append(time.monotonic())
            if number == 20:
                paused = engine.host.order(msg.Pause(clear=False, at_most_s=30), msg.Paused)
                assert paused.error == ""
                threading.Timer(1.0, lambda: engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport)).start()
    assert metric(engine, "num_preemptions") == before, "what was computed again has other last bits"
    assert text == whole
    assert max(b - a for a, b in itertools.pairwise(times)) > 0.9


@pytest.mark.parametrize("clear", [False, True])
def test_a_pause_with_clear_makes_running_requests_compute_again_and_lose_no_token(engine: Engine, clear: bool) -> None:
    idle(engine)
    whole = complete(engine, tokens=200, prompt=PREFIX[:32])[0]["choices"][0]["text"]
    before = metric(engine, "num_preemptions")
    with stream(engine, 200) as answer:
        lines = (json.loads(line[6:]) for line in answer if line.startswith(b"data: {"))
        text = "".join(next(lines)["choices"][0]["text"] for _ in range(10))
        assert engine.host.order(msg.Pause(clear=clear, at_most_s=30), msg.Paused).error == ""
        engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport)
        text += "".join(each["choices"][0]["text"] for each in lines)
    assert text == whole and (metric(engine, "num_preemptions") > before) == clear


def test_a_pause_ends_by_itself_and_says_so(engine: Engine) -> None:
    assert engine.host.order(msg.Pause(clear=False, at_most_s=0.5), msg.Paused).error == ""
    began = time.monotonic()
    complete(engine)
    assert 0.3 < time.monotonic() - began < 30
    told = engine.host.told(msg.EngineResumeReport, 5)
    assert told.expired and 0.4 < told.seconds < 30
    assert engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport) == msg.EngineResumeReport(0.0)


def test_the_response_says_which_weights_it_saw(engine: Engine) -> None:
    engine.host.refresh(12)
    assert complete(engine)[1][HEADER] == "12"
    with stream(engine, 300) as answer:
        assert answer.headers[HEADER] == "12"
        lines = [answer.readline() for _ in range(8)]
        assert engine.host.refresh(13).error == "" and engine.host.refresh(14).error == ""
        lines += answer.readlines()
    assert sum(line.startswith(b"data: {") for line in lines) > 100  # tokens that came together share an event
    tail = [line for line in lines if line.strip()][-2:]
    assert tail == [b"data: [DONE]\n", b": apollod-weights-version 12-14\n"]
    timer = threading.Timer(0.2, lambda: engine.host.refresh(15))
    timer.start()
    assert complete(engine, tokens=300)[1][HEADER] == "14-15"
    timer.join()


def test_openais_own_client_reads_streams_as_before(engine: Engine) -> None:
    engine.host.refresh(3)
    import openai

    client = openai.OpenAI(base_url=engine.url("/v1"), api_key="none")
    whole = client.completions.create(model="tiny", prompt="the harbour", max_tokens=12, temperature=0)
    chunks = list(
        client.completions.create(model="tiny", prompt="the harbour", max_tokens=12, temperature=0, stream=True)
    )
    assert (
        len(chunks) > 1 and chunks[-1].choices[0].finish_reason == "length"
    )  # tokens that came together share a chunk
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=4
    )
    assert raw.headers[HEADER] == "3" and raw.parse().choices


def test_a_supervisor_that_is_gone_leaves_no_pause(engine: Engine) -> None:
    """The last test of this engine: it has no supervisor any more."""
    assert engine.host.order(msg.Pause(clear=False, at_most_s=600), msg.Paused).error == ""
    waiting = threading.Thread(target=complete, args=(engine,))
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    engine.host.hang_up()
    waiting.join(20)
    assert not waiting.is_alive()


# --- the whole daemon ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fenced(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With vLLM, steps behind a fence, each compared with what is served. Its trainer dies in its second step, once.
    One weight is planted to be `rederive` on every kind of processor."""
    root = tmp_path_factory.mktemp("fenced")
    daemon = configured(root, tiny_model, 'publish = "fenced"\nalign_every = 1\n', VLLM)
    planted = ", ".join(map(json.dumps, ARGUMENTS))
    daemon.config.write_text(daemon.config.read_text().replace("args = [", f"args = [{planted}, "))
    (root / "once").mkdir()
    once = {"APOLLOD_FAILPOINT": "trainer.step.updated:2", "APOLLOD_FAILPOINT_ONCE": str(root / "once")}
    daemon.start(PATH | once)
    try:
        daemon.wait_ready()
        yield daemon
    finally:
        if daemon.alive():
            daemon.stop()


def configured(root: Path, model: Path, trainer: str, engine: str) -> Daemon:
    """A daemon with these lines in its section [trainer]."""
    daemon = Daemon(root, model, engine=engine)
    daemon.config.write_text(daemon.config.read_text().replace("[trainer]\n", f"[trainer]\n{trainer}"))
    return daemon


def test_a_trainer_killed_in_a_fenced_step_leaves_requests_answered(fenced: Daemon) -> None:
    before = fenced.status()["trainer"]
    with Clients(fenced, tokens=64) as clients:
        clients.wait(2)
        fenced.drop("learn.jsonl", *[chat_line(f"what is {i}?", f"it is {i}.") for i in range(4)])
        fenced.wait_learned(4)
        after = fenced.wait(lambda s: not s["weights"]["paused"], "requests going on after the last step")
        clients.wait(4)
    assert list((fenced.root / "once").iterdir()) and after["trainer"]["restarts"] == before["restarts"] + 1
    assert after["weights"]["served"] == 4 == after["weights"]["version"]
    assert order_of(journal_of(fenced)) == FENCED_STEP * 4


FENCED_STEP = ["step.started", "engine.paused", "step.completed", "engine.resumed"]


def order_of(events: list[ev.Event]) -> list[str]:
    """How steps and pauses came; no pause ended by itself."""
    assert not any(e.expired for e in events if isinstance(e, ev.EngineResumed))
    return [
        e.kind for e in events if isinstance(e, ev.StepStarted | ev.EnginePaused | ev.StepCompleted | ev.EngineResumed)
    ]


def test_rederived_parameters_follow_each_fenced_step(fenced: Daemon) -> None:
    """What the engine derives (a planted copy, packed convolutions where the processor has them) is right after steps:
    its log-probabilities are the trainer's, and its tensors. Without a fence: test_daemon."""
    status = fenced.wait(
        lambda s: (s["weights"]["alignment"]["step"], s["weights"]["alignment"]["tokens"]) == (4, 255),
        "the comparison after the last step",
    )
    assert status["weights"]["rederive"] > 0 and status["weights"]["alignment"]["aligned"]
    fenced.wait(
        lambda _: any(
            e.step > 0 and not e.differing for e in journal_of(fenced) if isinstance(e, ev.AlignmentCompared)
        ),
        "the tensors to be compared after a step",
    )
    measured = [e for e in journal_of(fenced) if isinstance(e, ev.AlignmentMeasured)]
    assert len({e.step for e in measured}) > 2, "also between steps, over a few tokens"
    assert all(e.aligned and e.mean_abs_diff < (0.02 if e.tokens == 255 else NOTHING["hybrid"]) for e in measured)


def test_an_engine_that_is_killed_comes_back_with_what_was_learned(fenced: Daemon) -> None:
    """vLLM loads the base or the last checkpoint again; the steps since then are run again in its new memory."""
    before = fenced.status()
    os.kill(before["engine"]["pid"], signal.SIGKILL)
    assert not dead_within([before["engine"]["pid"]], 10.0), "the engine's processes outlived it"
    after = fenced.wait(
        lambda s: (
            s["engine"]["restarts"] > before["engine"]["restarts"]
            and s["state"] == "serving"
            and s["weights"]["served"] == 4
        ),
        "another engine",
    )
    assert after["weights"]["fingerprint"] == before["weights"]["fingerprint"]
    assert fenced.wait(lambda s: s["weights"]["alignment"]["step"] == 4, "a comparison")["weights"]["alignment"][
        "aligned"
    ]
    assert fenced.post("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 2})[0] == 200
    fenced.stop()
    check_stopped(fenced)


# --- pauses by the journal: what vLLM does with one is shown above, what the stub does in test_engine_conformance
# -----------


def test_after_a_trainer_killed_in_a_fenced_step_pauses_and_steps_alternate(tiny_model: Path, tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.mkdir()
    daemon = configured(tmp_path, tiny_model, 'publish = "fenced"\n', STUB)
    try:
        daemon.start({"APOLLOD_FAILPOINT": "trainer.step.updated:2", "APOLLOD_FAILPOINT_ONCE": str(once)}).wait_ready()
        daemon.drop("learn.jsonl", *[chat_line(f"what is {i}?", f"it is {i}.") for i in range(4)])
        daemon.wait_learned(4)
        daemon.stop()
    finally:
        daemon.end()
    assert list(once.iterdir()) and order_of(check_stopped(daemon)) == FENCED_STEP * 4


def test_a_trainer_that_hangs_in_a_fenced_step_holds_requests_no_longer_than_configured(
    tiny_model: Path, tmp_path: Path
) -> None:
    daemon = configured(tmp_path, tiny_model, 'publish = "fenced"\nfence_max_s = 2.0\n', STUB)
    try:
        daemon.start().wait_ready()
        daemon.drop("learn.jsonl", *[chat_line(f"what is {i}?", f"it is {i}. " * 20) for i in range(400)])
        daemon.wait(lambda s: s["weights"]["paused"], "a fenced step")
        pid = daemon.status()["trainer"]["pid"]
        stopped = False
        while not stopped:  # stop it in the middle of a step
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.1)
            stopped = daemon.status()["weights"]["paused"]
            if not stopped:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)
        try:
            began = time.monotonic()
            status, _ = daemon.post("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 4})
            assert status == 501 and time.monotonic() - began < 10
        finally:
            os.kill(pid, signal.SIGCONT)
        daemon.wait(lambda s: s["queue"]["trained"] > 3, "learning to go on")
        assert any(e.expired for e in journal_of(daemon) if isinstance(e, ev.EngineResumed))
    finally:
        daemon.end()
