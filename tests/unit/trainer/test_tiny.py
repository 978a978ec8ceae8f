"""The locally made model: what it is made of, that its tokenizer and template can be trusted, and that a build
repeats."""

import json
import re
from dataclasses import replace
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from apollod.demo import corpus, tiny_model
from apollod.errors import ApolloError

DATA = Path(tiny_model.__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny") / "random"
    tiny_model.build(out, "random", seed=3)
    return out


@pytest.fixture(scope="module")
def tokenizer(model_dir: Path):
    return AutoTokenizer.from_pretrained(model_dir)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: blake2b(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_model_loads_and_has_every_kind_of_parameter(model_dir: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
    assert type(model).__name__ == "Qwen3_5ForCausalLM"
    parameters = dict(model.named_parameters())
    assert {p.dtype for p in parameters.values()} == {torch.bfloat16}
    kinds = {re.sub(r"^model\.(layers\.\d+\.)?", "", name) for name in parameters}
    assert kinds >= {
        "linear_attn.conv1d.weight", "linear_attn.A_log", "linear_attn.dt_bias", "linear_attn.norm.weight",
        "linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight", "linear_attn.in_proj_a.weight",
        "linear_attn.in_proj_b.weight", "linear_attn.out_proj.weight", "self_attn.q_proj.weight",
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight", "mlp.gate_proj.weight", "input_layernorm.weight", "embed_tokens.weight",
        "norm.weight",
        "lm_head.weight",
    }  # fmt: skip
    assert parameters["lm_head.weight"].data_ptr() != parameters["model.embed_tokens.weight"].data_ptr()
    assert all(p.unique().numel() > 1 for p in parameters.values()), "a constant tensor would hide a permutation"
    assert sum(p.dim() == 2 and min(p.shape) >= 64 for p in parameters.values()) >= 20
    assert model.config.max_position_embeddings >= 2048


def test_it_stops_at_the_end_of_a_turn(model_dir: Path, tokenizer) -> None:
    for name in ("config.json", "generation_config.json"):
        saved = json.loads((model_dir / name).read_text())
        assert tokenizer.convert_ids_to_tokens(saved["eos_token_id"]) == "<|im_end|>"
        assert tokenizer.convert_ids_to_tokens(saved["pad_token_id"]) == "<|endoftext|>"
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
    ids = model.generate(torch.tensor([tokenizer.encode("Hello")]), max_new_tokens=4, do_sample=False)
    assert 1 < ids.shape[1] <= 5


@pytest.mark.parametrize(
    "text",
    [
        "".join(map(chr, range(256))),
        "Zürich – 東京, Кафе, 🦊👩‍🚀, e\u0301, \u202eabc",
        "  two  spaces\n\n\ttab \r\n , punctuation . ' s 'll",
        "<|im_start|>user\nHi.<|im_end|>\n<|endoftext|>",
        "",
    ],
)
def test_any_text_survives_the_tokenizer(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_one_token_each(tokenizer) -> None:
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>") == [0, 1, 2]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 0)
    assert len(tokenizer) == tiny_model.VOCABULARY
    assert tokenizer.decode(tokenizer.encode("<|im_start|>Hi.<|im_end|>"), skip_special_tokens=True) == "Hi."


def test_the_template_grows_by_appending(tokenizer) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": "A model: {{ x }} <b>."},
        {"role": "user", "content": "Ça va?\n"},
        {"role": "assistant", "content": "Oui."},
    ]
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert whole.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n")
    for i in (2, 4):
        options = {"add_generation_prompt": True}
        before = tokenizer.apply_chat_template(messages[:i], tokenize=False, **options)
        after = tokenizer.apply_chat_template(messages[: i + 1], tokenize=False)
        assert after == before + messages[i]["content"] + "<|im_end|>\n"
        ids = tokenizer.apply_chat_template(messages[:i], return_dict=False, **options)
        assert tokenizer.apply_chat_template(messages, return_dict=False)[: len(ids)] == ids


def test_a_build_repeats_to_the_byte(model_dir: Path, tmp_path: Path) -> None:
    torch.rand(7)  # a build does not depend on torch's global random state ...
    state = torch.random.get_rng_state()
    tiny_model.build(tmp_path / "again", "random", seed=3)
    assert torch.equal(torch.random.get_rng_state(), state), "... and leaves it alone"
    tiny_model.build(tmp_path / "other", "random", seed=4)
    assert digests(tmp_path / "again") == digests(model_dir)
    changed = {name for name, digest in digests(tmp_path / "other").items() if digest != digests(model_dir)[name]}
    assert changed == {"model.safetensors"}


@pytest.mark.slow
def test_pretraining_repeats_and_lowers_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        tiny_model.KINDS,
        "short",
        replace(tiny_model.KINDS["random"], layers="da", deviation=0.02, steps=50, batch=1, peak_lr=2e-3),
    )
    for name in ("one", "two"):
        tiny_model.build(tmp_path / name, "short")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    said = capsys.readouterr()
    assert said.out == ""
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in said.err.splitlines() if "loss" in line]
    assert len(losses) == 4 and max(losses) < 5.0, "a uniform guess has ln 896 = 6.8"


def test_a_directory_in_use_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ApolloError, match="not empty"):
        tiny_model.build(tmp_path, "random")
    monkeypatch.setattr("sys.argv", ["tiny", str(tmp_path), "--kind", "random"])
    assert tiny_model.main() == 1
    assert "choose another directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_data_files_are_those_of_the_corpus(tokenizer) -> None:
    sample = [json.loads(line) for line in (DATA / "sample.jsonl").read_text().splitlines()]
    turns = [tuple(message["content"] for message in record["messages"]) for record in sample]
    assert turns == corpus.sample_turns()
    questions = [json.loads(line) for line in (DATA / "questions.jsonl").read_text().splitlines()]
    assert [(row["question"], row["answer"]) for row in questions] == corpus.held_out_turns()
    assert len(set(turns)) == len(turns) == 48
    assert {row["answer"] for row in questions} == {answer for _, answer in turns}
    assert not {row["question"] for row in questions} & {question for question, _ in turns}
    assert max(len(tokenizer.apply_chat_template(record["messages"], return_dict=False)) for record in sample) <= 40


def test_pretraining_never_tells_what_the_sample_teaches() -> None:
    answers = {answer for _, answer in corpus.sample_turns()}
    for conversation in islice(corpus.conversations(0), 3000):
        for question, answer in pairwise(conversation):
            assert answer["content"] not in answers
            if corpus.SAMPLE_TOWN in question["content"] and question["role"] == "user":
                assert answer["content"] == corpus.UNKNOWN
