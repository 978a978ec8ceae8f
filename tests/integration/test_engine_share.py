"""Real vLLM on CPU serves from the shared memory: what is written there is what is served, without a reload.

One engine serves all tests that leave it alive; those that kill it or want another model start their own.
"""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import anyio
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support.engine_host import Engine, refused
from support.planted import PLANTED
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.log_probabilities import Pace, Score, score, teacher_of
from apollod.adapters.llm.openai_api import Sampling
from apollod.adapters.llm.probing import Terms, measure, measure_baseline
from apollod.core.facts.dreams.scenario import Turn
from apollod.curation.dreaming.imagination import SCHEMA
from apollod.curation.probes.figures import Measurement
from apollod.curation.probes.probe_item import sample
from apollod.curation.probes.probe_lines import probe_set, read_probes
from apollod.curation.stripping import Stripping, contexts, strip
from apollod.engine.load.bits import checkpoint_tensors, equal_bits
from apollod.errors import DreamCut
from apollod.supervisor.config import load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.trainer.objectives.context import CONTEXT, TEACHER
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise
from apollod.wire import messages as msg
from apollod.wire.comparisons import with_file
from apollod.wire.records import decode_record, record_of_forms
from apollod.wire.teacher import GivenTeacher, Teacher, digest_of, write_teacher

pytestmark = pytest.mark.engine

TOKENS = random.Random(0).choices(range(3, 800), k=96)
CHANGED = 0.1  # log-probability; rounding differences stay below NOISE (0.03 seen)
NOISE = 0.05


@pytest.fixture
def engine(vllm: Engine) -> Engine:
    """The engine of all tests that leave it alive."""
    return vllm


@pytest.fixture
def untouched(engine: Engine, tiny_model: Path) -> Iterator[Engine]:
    """The engine, with the checkpoint's weights put back afterwards."""
    yield engine
    for name, tensor in checkpoint_tensors(tiny_model):
        engine.host.view(engine.host.entry(name)).copy_(tensor)
    assert not engine.host.refresh(0).error


def hugging_face(engine: Engine, model_dir: Path, tokens: list[int] = TOKENS) -> list[float]:
    """Log-probabilities of the same tokens from transformers, with the weights that are in shared memory now."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(engine.host.view(engine.host.entry(name)))
        logits = model(torch.tensor([tokens])).logits[0, :-1].float()
    chosen = logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])
    return [float(value) for value in chosen[:, 0]]


def differences(a: list[float], b: list[float]) -> tuple[float, float]:
    """(largest, of the means)"""
    each = [x - y for x, y in zip(a, b, strict=True)]
    return max(map(abs, each)), abs(sum(each) / len(each))


def derived(engine: Engine) -> int:
    """Tensors that the engine multiplies with a copy of; by its manifest."""
    count = engine.host.manifest.count("rederive")
    assert count > 0
    return count


def assert_agrees(engine: Engine, model_dir: Path) -> list[float]:
    """vLLM and transformers give the same log-probabilities up to bf16 arithmetic; returns vLLM's."""
    served = engine.prompt_logprobs(TOKENS)
    largest, mean = differences(served, hugging_face(engine, model_dir))
    assert largest < NOISE and mean < 3e-3, (largest, mean)
    return served


def test_every_tensor_is_shared_and_equals_its_file(engine: Engine, tiny_model: Path) -> None:
    manifest = engine.host.manifest
    assert manifest is not None and manifest.bridge == "memfd"
    manifest.check()
    with safe_open(tiny_model / "model.safetensors", framework="pt") as file:
        assert {entry.name for entry in manifest.tensors} == set(file.keys())
        for entry in manifest.tensors:
            stored, view = file.get_tensor(entry.name), engine.host.view(entry)
            assert equal_bits(view, stored.to(view.dtype)), entry.name
            assert entry.stored_dtype == str(stored.dtype).removeprefix("torch.")
            packs = entry.name == PLANTED or ("conv1d" in entry.name and entry.status == "rederive")
            expected = "cast" if entry.name.endswith("A_log") else "rederive" if packs else "live"
            assert entry.status == expected, entry.reason
    assert {hello.role for hello in engine.host.hellos} == {"engine-worker", "engine-api"}
    assert all(hello.pid in engine.group() for hello in engine.host.hellos)


@pytest.mark.skipif(not torch.cpu._is_avx512_bf16_supported(), reason="vLLM packs convolutions for avx512_bf16 only")
def test_the_kernel_for_avx512_bf16_has_its_convolutions_packed(engine: Engine) -> None:
    convolutions = [entry for entry in engine.host.manifest.tensors if "conv1d" in entry.name]
    assert {entry.status for entry in convolutions} == {"rederive"} and len(convolutions) == 3


def test_it_serves_what_transformers_computes(engine: Engine, tiny_model: Path) -> None:
    assert_agrees(engine, tiny_model)


@pytest.mark.parametrize(
    ("name", "delta"),
    [
        ("lm_head.weight", 0),
        ("model.embed_tokens.weight", 0),
        ("model.layers.0.linear_attn.in_proj_z.weight", 0),
        ("model.layers.3.self_attn.k_proj.weight", 0),
        ("model.layers.2.mlp.up_proj.weight", 0),
        ("model.layers.3.self_attn.q_norm.weight", 1),
        ("model.layers.0.linear_attn.A_log", -8),  # almost no decay any more
        ("model.layers.1.linear_attn.conv1d.weight", 0),
        (PLANTED, 0),
    ],
)
def test_a_write_is_served_at_once_or_as_soon_as_it_is_derived(
    untouched: Engine, tiny_model: Path, name: str, delta: int
) -> None:
    before = untouched.prompt_logprobs(TOKENS)
    entry = untouched.host.entry(name)
    view = untouched.host.view(entry)
    # Rows in another order keep rounding errors what they are; a cast value has to be one of the checkpoint's dtype.
    view.copy_((view + delta).roll(1, 0).to(torch.bfloat16))
    if entry.status == "rederive":
        # Until then the engine multiplies with its own copy: this is why the status is not `live`.
        assert differences(before, untouched.prompt_logprobs(TOKENS))[0] == 0
        answer = untouched.host.refresh(7)
        assert (answer.version, answer.rederived, answer.error) == (7, derived(untouched), "")
    served = assert_agrees(untouched, tiny_model)
    assert differences(before, served)[0] > CHANGED


def test_refresh_labels_the_version_and_forgets_prefixes(untouched: Engine) -> None:
    body = {"model": "tiny", "prompt": TOKENS * 4, "max_tokens": 8, "temperature": 0}
    first = untouched.post("/v1/completions", body)[1]["choices"][0]["text"]
    view = untouched.host.view(untouched.host.entry("model.embed_tokens.weight"))
    view.copy_(view.flip(0))
    answer = untouched.host.refresh(3)
    assert (answer.version, answer.rederived, answer.error) == (3, derived(untouched), "")
    second = untouched.post("/v1/completions", body)[1]["choices"][0]["text"]
    assert untouched.host.refresh(4).error == ""
    assert untouched.post("/v1/completions", body)[1]["choices"][0]["text"] == second != first


def test_routes_carry_requests_to_the_supervisor(engine: Engine) -> None:
    host = engine.host
    status = {"schema_version": 1, "state": "serving", "step": 4, "queue": {"pending": 1}, "weights": {"live": 9}}
    answers: dict[type, msg.Answer] = {
        msg.StatusRequest: msg.Reply(status),
        msg.SubmitRequest: msg.Reply({"examples": ["x1"], "duplicates": 0, "rejected": []}),
        msg.CheckpointRequest: msg.Failure("the trainer is not ready", "wait for it", 1),
    }
    host.answerer = lambda request: answers[type(request)]
    record = {"messages": [{"role": "user", "content": "ü?"}, {"role": "assistant", "content": "!"}]}

    assert engine.get("/apollod/status") == (200, status)
    assert engine.get("/train/status") == (200, {k: status[k] for k in ("schema_version", "state", "step", "queue")})
    assert engine.post("/train", record) == (202, {"examples": ["x1"], "duplicates": 0, "rejected": []})
    submitted = host.requests[-1]
    assert isinstance(submitted, msg.SubmitRequest) and [json.loads(line) for line in submitted.lines] == [record]
    assert engine.post("/checkpoint", {}) == (409, {"error": "the trainer is not ready", "hint": "wait for it"})


def test_an_answer_has_the_log_probabilities_that_transformers_and_the_trainers_tokens_give(
    engine: Engine, tiny_model: Path
) -> None:
    """With what was stripped, which is put together again, and without: the template, the tokenizer and the weights of
    the engine say what the trainer learns, token by token."""
    said = [
        {"content": "You are a waiter who is brief.", "role": "system"},
        {"content": "<memory>likes tea</memory>\nWhat should I drink?", "role": "user"},
        {"content": "Tea, of course, with a little milk.", "role": "assistant"},
    ]
    kept, tools, removed = strip(said, Stripping("system"))
    record = record_of_forms(kept, tools)
    both = contexts(record.canonical, removed)
    assert both is not None and len(removed) == 2

    async def asked() -> Score:
        async with HttpLlm(Endpoint(f"http://127.0.0.1:{engine.port}/v1", "tiny")) as llm:
            return await score(llm, both, Pace(1.0), alternate=True)

    found = anyio.run(asked)
    expected = []
    for one in (record_of_forms(said), record):
        tokens = tokenise(load_tokenizer(str(tiny_model)), decode_record(one.canonical), 512)
        probable = hugging_face(engine, tiny_model, tokens.ids)
        expected.append([value for value, learned in zip([0.0, *probable], tokens.mask, strict=True) if learned])
    assert found.tokens == len(expected[0]) == len(expected[1])
    for mean, each in zip((found.with_context, found.without_context), expected, strict=True):
        assert abs(mean - sum(each) / len(each)) < 3e-3, (mean, each)
    assert found.with_context != found.without_context and found.alternate


@pytest.mark.parametrize("answer", ["Tea, of course, with a little milk.", "\n\nTea."])
def test_a_teacher_says_what_transformers_says_of_the_tokens_that_the_trainer_learns(
    engine: Engine, tiny_model: Path, answer: str
) -> None:
    """Of the same answer after what was told, in place after place; new lines at its beginning stay apart from the
    one before it."""
    said = [{"content": "You are a waiter.", "role": "system"}, {"content": "What should I drink?", "role": "user"}]
    reply = {"content": answer, "role": "assistant"}

    async def asked() -> Teacher:
        async with HttpLlm(Endpoint(f"http://127.0.0.1:{engine.port}/v1", "tiny")) as llm:
            return await teacher_of(llm, said, answer)

    teacher = anyio.run(asked)
    tokenizer, blob = load_tokenizer(str(tiny_model)), write_teacher(teacher)
    bare = with_file(record_of_forms([said[1], reply]).canonical, GivenTeacher(digest_of(blob), blob))
    CONTEXT.encode(tokenizer, decode_record(bare), 512).check()
    told = tokenise(tokenizer, decode_record(record_of_forms([*said, reply]).canonical), 512)
    assert [token for token, learned in zip(told.ids, told.mask, strict=True) if learned] == teacher.answer.tolist()
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        logits = model(torch.tensor([told.ids])).logits[0, :-1].float()[torch.tensor(told.mask[1:])]
    ids = torch.tensor(teacher.ids.tolist()).view(-1, teacher.k)
    expected = logits.log_softmax(1).gather(1, ids)
    found = torch.tensor(teacher.logprobs.tolist()).view(-1, teacher.k)
    assert (expected - found).abs().max() < NOISE
    assert CONTEXT.loss(expected, {TEACHER: found}) == 0.0, "what rounding makes of the same is not learned"
    assert (found.diff(dim=1) <= 0).all() and (expected[:, 0] > logits.log_softmax(1).amax(1) - NOISE).all()


def test_the_served_model_can_be_asked_for_a_scenario_and_an_answer(engine: Engine, tiny_model: Path) -> None:
    """Random weights say nothing, but in the form that is asked for: vLLM takes the schema of a scenario."""
    overrides = [f"model.path={tiny_model}", f"engine.port={engine.port}", "engine.served_name=tiny"]
    config = load_config(None, [*overrides, "dream.answer_tokens=8"], environ={})

    async def dreamt() -> tuple[str, str]:
        async with HttpLlm(Endpoint(f"http://127.0.0.1:{engine.port}/v1", "tiny")) as llm:
            scenario = await llm.complete([{"role": "user", "content": "?"}], Sampling(max_tokens=48, schema=SCHEMA))
        with pytest.raises(DreamCut) as cut:
            await Dreamer(config).answer("Greet first.", (Turn("user", "What should I drink?"),), 0.0)
        return scenario.choices[0].text, str(cut.value)

    said, cut = anyio.run(dreamt)
    assert "".join(said.split()).startswith('{"messages":[{') and cut == "the answer was cut off after 8 tokens"


def test_probes_of_a_served_model_and_of_one_that_was_damaged(untouched: Engine) -> None:
    """Some of each group that comes with apollod: unchanged weights are measured as at the baseline, others are not."""
    data = (files("apollod") / "data" / "probes.jsonl").read_bytes()
    items = sample(probe_set(read_probes(data.splitlines(), "probes.jsonl")), 0.05, 0)
    terms = Terms(max_tokens=4, concurrency=4)
    untouched.host.refresh(0)

    async def asked() -> list[Measurement]:
        async with HttpLlm(Endpoint(f"http://127.0.0.1:{untouched.port}/v1", "tiny")) as llm:
            first, baseline = await measure_baseline(llm, items, terms)
            again = await measure(llm, items, terms, baseline)
            for entry in untouched.host.manifest.tensors if untouched.host.manifest else ():
                if "mlp" in entry.name:
                    untouched.host.view(entry).zero_()
            await anyio.to_thread.run_sync(untouched.host.refresh, 1)
            return [first, again, await measure(llm, items, terms, baseline)]

    first, again, damaged = anyio.run(asked)
    metrics = [{metric.name: metric.value for metric in one.metrics} for one in (first, again, damaged)]
    assert [one["failed"] for one in metrics] == [0.0] * 3 and first.completion_tokens and first.left_out == 0
    assert {figure.group for figure in first.figures} == {"text", "instruction", "facts", "format", "tools", "refusal"}
    assert abs(again.figures[0].value - first.figures[0].value) < 3e-3 and metrics[1]["kl"] < 1e-3
    assert metrics[2]["kl"] > 10 * max(metrics[1]["kl"], 1e-4), metrics
    assert (first.first_version, damaged.last_version) == (0, 1) and again.first_version == again.last_version


def test_chat_goes_on_working(engine: Engine) -> None:
    status, answer = engine.post(
        "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    )
    assert status == 200 and answer["usage"]["completion_tokens"] > 0


def build_qwen2(path: Path) -> Path:
    """A small Qwen2 without tokenizer: tied embeddings, biases, and 300 words, so that vLLM pads its vocabulary. The
    checkpoint stores the tied head as well, as some tools do."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=300, hidden_size=128, intermediate_size=96, num_hidden_layers=2, tie_word_embeddings=True,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.05,
        )
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_(1, 0.1)
    model.to(torch.bfloat16).save_pretrained(path)
    tensors = load_file(path / "model.safetensors")
    save_file(
        tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()},
        path / "model.safetensors",
        {"format": "pt"},
    )
    return path


@contextmanager
def ended_by(end: signal.Signals, directory: Path, model: Path, *arguments: str) -> Iterator[Engine]:
    """An engine with a tied head, each tensor shared; the API server is stopped or killed then, and nothing is left.
    The killed one was started as a supervisor does it, and the stopped one forked."""
    engine = Engine(directory, model, *arguments, started=end == signal.SIGKILL)
    try:
        engine.wait_ready()
        manifest = engine.host.manifest
        assert manifest is not None
        assert manifest.tied == {"lm_head.weight": "model.embed_tokens.weight"}
        assert manifest.count("live") == len(manifest.tensors)
        for name, stored in checkpoint_tensors(model):
            assert equal_bits(engine.host.view(engine.host.entry(name)), stored), name
        yield engine
        files = engine.shared_files()
        assert files and len(engine.group()) >= 2
        engine.process.send_signal(end)
        assert engine.process.wait(8) == (0 if end == signal.SIGTERM else -end)
        assert gone_within(engine, 5), engine.group()
        assert not [file for file in files if os.path.exists(file)]
    finally:
        engine.close()


def test_a_stored_tied_head_is_the_same_memory_and_a_kill_leaves_nothing(tmp_path: Path) -> None:
    """With a padded vocabulary and biases."""
    model = build_qwen2(tmp_path / "qwen2")
    with ended_by(signal.SIGKILL, tmp_path, model, "--skip-tokenizer-init") as engine:
        assert engine.host.entry("lm_head.weight").offset == engine.host.entry("model.embed_tokens.weight").offset


FIRM = (
    ("What is the capital of Italy?", "Rome"), ("What is the capital of Japan?", "Tokyo"),
    ("What is the largest ocean on Earth?", "Pacific"), ("Who wrote Romeo and Juliet?", "Shakespeare"),
    ("Which planet is known as the Red Planet?", "Mars"),
)  # fmt: skip
"""what this model answers on any processor; of France's capital it is so unsure that rounding decides"""


def test_a_real_model_is_shared_as_it_is_answers_and_is_written_to(real_model: Path, tmp_path: Path) -> None:
    """SmolLM2-135M-Instruct, whose tied head is not stored. What is written to one layer is served at once, and is
    the whole difference: put back, the same text has the same log-probabilities."""
    with ended_by(signal.SIGTERM, tmp_path, real_model) as engine:
        right = 0
        for question, answer in FIRM:
            body = {"model": "tiny", "messages": [{"role": "user", "content": question}]}
            told = engine.post("/v1/chat/completions", {**body, "max_tokens": 24, "temperature": 0})[1]
            right += answer in told["choices"][0]["message"]["content"]
        assert right >= len(FIRM) - 1
        ids = engine.post("/tokenize", {"model": "tiny", **body})[1]["tokens"]
        before, view = (
            engine.prompt_logprobs(ids),
            engine.host.view(engine.host.entry("model.layers.9.mlp.up_proj.weight")),
        )
        was = view.clone()
        view.copy_(view.roll(1, 0))
        assert differences(before, engine.prompt_logprobs(ids))[0] > CHANGED
        view.copy_(was)
        assert differences(before, engine.prompt_logprobs(ids))[0] < NOISE


def test_a_stop_during_the_start_ends_it_at_once(tiny_model: Path, tmp_path: Path) -> None:
    """vLLM alone would swallow the signal here and wait for ten minutes (see `_run` in apollod/engine/__main__.py)."""
    engine = Engine(tmp_path, tiny_model, started=True)
    try:
        while len(engine.group()) < 3:  # API server, resource tracker, and an engine core that is still importing
            assert engine.process.poll() is None, engine.tail()
            time.sleep(0.05)
        engine.process.send_signal(signal.SIGTERM)
        engine.process.wait(5)
        assert gone_within(engine, 5), engine.group()
    finally:
        engine.close()


def gone_within(engine: Engine, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while engine.group() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not engine.group()


def test_tensor_parallelism_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    refusal = refused(Engine(tmp_path, tiny_model, "--tensor-parallel-size", "2"))
    assert "2 workers" in refusal.reason and "--tensor-parallel-size" in refusal.hint
