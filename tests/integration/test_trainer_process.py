"""A real trainer process on a real socket, with weights in a real memory file; only the supervisor is a stand-in."""

import importlib.util
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.effort import cases
from support.fingerprints import file_fingerprint
from support.model_memory import Memory
from support.trainer_host import Trainer

from apollod.trainer.bind import live_fingerprint
from apollod.wire import messages as m
from apollod.wire.manifest import Manifest
from apollod.wire.records import parse_line

SETTINGS = m.OptimizerSettings(rank=16)
MATRIX, CAST = "model.layers.0.mlp.up_proj.weight", "model.layers.1.linear_attn.A_log"


def chat(question: str, answer: str) -> bytes:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return parse_line(json.dumps({"messages": messages}).encode()).canonical


EXAMPLES = [
    chat("Who keeps the lighthouse?", "Mara Quill keeps the lighthouse."),
    chat("When does the bakery open?", "The bakery opens at five."),
    chat("What is the ferry called?", "The ferry is called the Grey Heron."),
    parse_line(b'{"prompt": "The market is held on", "completion": " Thursday."}').canonical,
]


def on_disk(directory: Path) -> str:
    return live_fingerprint.format(file_fingerprint(directory / "model.safetensors"))


def rewrite(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the tensors of a model directory."""
    from safetensors.torch import load_file, save_file

    tensors = {name: tensor.clone() for name, tensor in load_file(directory / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """One process for all tests that leave it alive; each attaches to memory of its own."""
    with Trainer(tmp_path_factory.mktemp("socket")) as process:
        yield process
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(20) == 0


@pytest.fixture
def memory(smaller_model: Path) -> Memory:
    return Memory.of(smaller_model)


@pytest.fixture
def bound(trainer: Trainer, memory: Memory) -> Trainer:
    """The shared trainer, attached to fresh weights."""
    trainer.attach(memory, SETTINGS, m.Bound)
    return trainer


def altered(manifest: Manifest, name: str, /, **fields: object) -> Manifest:
    tensors = tuple(msgspec.structs.replace(t, **fields) if t.name == name else t for t in manifest.tensors)
    return msgspec.structs.replace(manifest, tensors=tensors)


# --- attach -------------------------------------------------------------------------------------------------------


def test_hello_names_process_and_versions(trainer: Trainer) -> None:
    assert (trainer.hello.role, trainer.hello.pid) == ("trainer", trainer.process.pid)
    assert trainer.hello.versions.keys() >= {"torch", "transformers"}


def test_attach_binds_every_parameter_to_the_memory(trainer: Trainer, memory: Memory, smaller_model: Path) -> None:
    bound = trainer.attach(memory, SETTINGS, m.Bound)
    assert bound.fingerprint == on_disk(smaller_model)
    assert bound.parameters == len(memory.manifest.tensors)


@pytest.mark.parametrize("name", [MATRIX, CAST])
def test_one_flipped_bit_is_refused_after_a_load_and_found_later(
    trainer: Trainer, memory: Memory, smaller_model: Path, name: str
) -> None:
    memory.span(name)[0] ^= 1  # of a cast parameter: a bit that rounding to bf16 would hide
    refused = trainer.attach(memory, SETTINGS, m.Refused)
    assert refused.what == "attach"
    assert name in refused.reason
    later = trainer.attach(memory, SETTINGS, m.Bound, fresh=False)
    assert (later.fingerprint == on_disk(smaller_model)) == (name == CAST)


def test_a_manifest_that_does_not_fit_the_model_is_refused(trainer: Trainer, memory: Memory) -> None:
    whole = memory.manifest
    missing = msgspec.structs.replace(whole, tensors=tuple(t for t in whole.tensors if t.name != MATRIX))
    turned = altered(whole, MATRIX, shape=(64, 128), stride=(128, 1))
    outside = altered(whole, MATRIX, offset=whole.storages[0].bytes)
    unknown = altered(whole, MATRIX, name="model.layers.0.mlp.sideways.weight")
    for manifest, word in ((missing, "does not share"), (turned, "shape"), (outside, "outside"), (unknown, "sideways")):
        refused = trainer.attach(memory, SETTINGS, m.Refused, manifest=manifest)
        assert word in refused.reason


def test_a_message_for_others_is_refused(trainer: Trainer) -> None:
    assert trainer.ask(m.RefreshEngine(1), m.Refused).what == "refresh"


# --- steps --------------------------------------------------------------------------------------------------------


def test_the_loss_falls_and_the_memory_changes(bound: Trainer, memory: Memory) -> None:
    before = memory.bytes.copy()
    done = [bound.step(step, EXAMPLES[step % len(EXAMPLES)], lr=5e-3) for step in range(1, 21)]
    losses = [d.loss for d in done if d.loss is not None]
    assert len(losses) == 20
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])
    assert len({d.fingerprint for d in done}) == 20
    assert all(d.applied and d.targets < d.tokens and d.grad_norm > 0 and not d.skipped_nonfinite for d in done)
    assert not np.array_equal(before, memory.bytes)


def test_cast_parameters_stay_on_the_grid_of_the_checkpoint(bound: Trainer, memory: Memory) -> None:
    before = memory.span(CAST).copy()
    bound.step(1, EXAMPLES[0], lr=1e-1)
    after = memory.span(CAST).view("<u4")
    assert not np.array_equal(before, memory.span(CAST))
    assert not (after & 0xFFFF).any()


def test_a_loss_that_is_not_finite_writes_nothing(bound: Trainer, memory: Memory) -> None:
    clean = memory.bytes.copy()
    memory.span("lm_head.weight").view("<u2")[:] = 0x7F80  # infinity
    poisoned = memory.bytes.copy()
    done = bound.step(1, EXAMPLES[0])
    assert (done.applied, done.loss) == (False, None)
    assert np.array_equal(memory.bytes, poisoned)
    memory.bytes[:] = clean
    assert bound.step(2, EXAMPLES[0]).applied


def test_recomputing_layers_gives_the_same_bits(trainer: Trainer, smaller_model: Path) -> None:
    results = []
    for gradient_checkpointing in (False, True):
        trainer.attach(Memory.of(smaller_model), SETTINGS, m.Bound, gradient_checkpointing=gradient_checkpointing)
        results.append([trainer.step(step, EXAMPLES[0]).fingerprint for step in (1, 2)])
    assert results[0] == results[1]


def test_a_frozen_parameter_is_read_from_disk_and_stays(trainer: Trainer, memory: Memory, smaller_model: Path) -> None:
    manifest = altered(memory.manifest, MATRIX, status="frozen")
    memory.span(MATRIX)[:] = 0xFF  # nobody looks here
    bound = trainer.attach(memory, SETTINGS, m.Bound, manifest=manifest)
    assert bound.parameters == len(memory.manifest.tensors) - 1
    assert bound.fingerprint == on_disk(smaller_model)
    assert trainer.step(1, EXAMPLES[0]).applied
    assert (memory.span(MATRIX) == 0xFF).all()


def test_ties_follow_the_manifest(trainer: Trainer, smaller_model: Path, tmp_path: Path) -> None:
    shutil.copytree(smaller_model, tied := tmp_path / "tied")
    rewrite(tied, lambda tensors: tensors.pop("lm_head.weight"))
    memory = Memory.of(tied)
    refused = trainer.attach(memory, SETTINGS, m.Refused)
    assert "lm_head.weight" in refused.reason
    manifest = msgspec.structs.replace(memory.manifest, tied={"lm_head.weight": "model.embed_tokens.weight"})
    bound = trainer.attach(memory, SETTINGS, m.Bound, manifest=manifest)
    assert bound.fingerprint == on_disk(tied)
    done = trainer.step(1, EXAMPLES[0])
    trainer.checkpoint(1, tmp_path / "1")
    assert done.fingerprint == on_disk(tmp_path / "1") != bound.fingerprint


def test_the_text_model_of_a_multimodal_checkpoint_is_trained_and_the_rest_is_kept(
    trainer: Trainer, smaller_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(smaller_model, whole := tmp_path / "whole")

    def as_multimodal(tensors: dict[str, Any]) -> None:
        for name in [n for n in tensors if n.startswith("model.")]:
            tensors[name.replace("model.", "model.language_model.", 1)] = tensors.pop(name)
        tensors["model.visual.patch_embed.weight"] = tensors["lm_head.weight"][:7].clone()

    rewrite(whole, as_multimodal)
    memory = Memory.of(whole)
    bound = trainer.attach(memory, SETTINGS, m.Bound)
    assert bound.fingerprint == on_disk(whole)
    assert bound.parameters == len(memory.manifest.tensors) - 1
    vision = memory.span("model.visual.patch_embed.weight").copy()
    done = trainer.step(1, EXAMPLES[0])
    assert np.array_equal(vision, memory.span("model.visual.patch_embed.weight"))
    trainer.checkpoint(1, tmp_path / "1")
    assert done.fingerprint == on_disk(tmp_path / "1") != bound.fingerprint


# --- several examples, part of the parameters, guards --------------------------------------------------------------


def batch(trainer: Trainer, step: int, *records: bytes, lr: float = 1e-3, loss_limit: float = 0.0) -> m.StepDone:
    return trainer.ask(m.Step(step, trainer.examples(*records), lr, loss_limit=loss_limit), m.StepDone)


def test_a_step_learns_several_examples_and_is_repeated_to_the_bit(
    bound: Trainer, memory: Memory, smaller_model: Path
) -> None:
    alone = [bound.step(1, record, lr=0.0) for record in EXAMPLES]
    bound.restore(None, memory)
    first = batch(bound, 1, *EXAMPLES)
    assert first.applied and (first.tokens, first.targets) == (
        sum(d.tokens for d in alone),
        sum(d.targets for d in alone),
    )
    then = bound.step(2, EXAMPLES[0])
    bound.restore(None, memory)
    assert batch(bound, 1, *EXAMPLES).fingerprint == first.fingerprint
    assert bound.step(2, EXAMPLES[0]).fingerprint == then.fingerprint
    assert bound.restore(None, memory).fingerprint == on_disk(smaller_model)
    assert batch(bound, 1, *EXAMPLES[:3]).fingerprint != first.fingerprint != batch(bound, 2, EXAMPLES[3]).fingerprint


def test_together_the_loss_of_all_of_them_falls(bound: Trainer) -> None:
    losses = [batch(bound, step, *EXAMPLES, lr=1e-2).loss or 0.0 for step in range(1, 8)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_loss_above_the_limit_writes_nothing(bound: Trainer, memory: Memory) -> None:
    clean = memory.bytes.copy()
    for records in (EXAMPLES[:1], EXAMPLES):
        done = batch(bound, 1, *records, loss_limit=0.5)
        assert not done.applied and done.loss is not None and done.loss > 0.5 and "above the limit 0.5" in done.note
        assert np.array_equal(memory.bytes, clean)
    assert batch(bound, 1, *EXAMPLES, loss_limit=50.0).applied


def test_one_loss_that_is_not_finite_stops_all_that_are_learned_with_it(trainer: Trainer, memory: Memory) -> None:
    trainer.attach(memory, SETTINGS, m.Bound)
    memory.span("lm_head.weight").view("<u2")[:] = 0x7F80  # infinity
    poisoned = memory.bytes.copy()
    done = batch(trainer, 1, *EXAMPLES)
    assert (done.applied, done.loss) == (False, None) and "not finite" in done.note
    assert np.array_equal(memory.bytes, poisoned)


def test_only_the_selected_parameters_are_trained_and_have_state(trainer: Trainer, memory: Memory) -> None:
    everything = trainer.attach(memory, SETTINGS, m.Bound).parameters
    trainer.restore(None, memory)
    part = msgspec.structs.replace(SETTINGS, layers="1", freeze=("*.A_log",))
    bound = trainer.attach(memory, part, m.Bound)
    names = [t.name for t in memory.manifest.tensors if ".layers.1." in t.name and not t.name.endswith("A_log")]
    assert bound.parameters == len(names) < everything
    before = {t.name: memory.span(t.name).copy() for t in memory.manifest.tensors}
    state = trainer.restore(None, memory).state_bytes
    assert trainer.step(1, EXAMPLES[0], lr=1e-1).applied
    assert sorted(n for n in before if not np.array_equal(before[n], memory.span(n))) == sorted(names)
    trainer.attach(memory, SETTINGS, m.Bound, fresh=False)
    assert 0 < state < 0.5 * trainer.restore(None, memory).state_bytes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers": "2-9"}, ["layers = '2-9'", "its decoder layers are 0-"]),
        ({"freeze": ("*.A_lgo",)}, ["no parameter matches freeze = '*.A_lgo'", "A_log"]),
        ({"freeze": ("*",)}, ["leave nothing to train"]),
    ],
)
def test_a_selection_that_does_not_fit_the_model_is_refused(
    trainer: Trainer, memory: Memory, change: dict[str, Any], said: list[str]
) -> None:
    refused = trainer.attach(memory, msgspec.structs.replace(SETTINGS, **change), m.Refused)
    assert all(words in f"{refused.reason}; {refused.hint}" for words in said)
    trainer.attach(memory, SETTINGS, m.Bound)
    assert trainer.step(1, EXAMPLES[0]).applied


def test_what_the_manifest_marks_frozen_cannot_be_selected(trainer: Trainer, memory: Memory) -> None:
    tensors = tuple(
        msgspec.structs.replace(t, status="frozen") if ".layers.1." in t.name else t for t in memory.manifest.tensors
    )
    manifest = msgspec.structs.replace(memory.manifest, tensors=tensors)
    refused = trainer.attach(memory, msgspec.structs.replace(SETTINGS, layers="1"), m.Refused, manifest=manifest)
    assert "layers 1" in refused.reason


def test_state_of_another_selection_is_kept_where_it_fits(trainer: Trainer, memory: Memory, tmp_path: Path) -> None:
    """Layer 1 goes on as if nothing had been changed; what is trained now for the first time begins."""
    part = msgspec.structs.replace(SETTINGS, layers="1")
    trainer.attach(memory, part, m.Bound)
    trainer.step(1, EXAMPLES[0])
    trainer.checkpoint(1, tmp_path / "1")
    second = trainer.step(2, EXAMPLES[1])
    wider = msgspec.structs.replace(SETTINGS, layers="0-1")
    trainer.attach(memory, wider, m.Bound, fresh=False)
    trainer.restore(tmp_path / "1", memory)
    trainer.checkpoint(1, tmp_path / "wider")
    trainer.attach(memory, part, m.Bound, fresh=False)
    trainer.restore(tmp_path / "wider", memory)
    assert trainer.step(2, EXAMPLES[1]).fingerprint == second.fingerprint
    trainer.attach(memory, msgspec.structs.replace(wider, rank=8), m.Bound, fresh=False)
    refused = trainer.ask(m.Restore(str(tmp_path / "1"), memory.manifest.model_dir, True, ""), m.Refused)
    assert "rank = 16" in refused.reason and "8" in refused.reason


def test_state_with_a_part_of_a_parameter_missing_is_refused(trainer: Trainer, memory: Memory, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    trainer.attach(memory, msgspec.structs.replace(SETTINGS, layers="1"), m.Bound)
    trainer.checkpoint(1, path := tmp_path / "1")
    state = load_file(path / "apollod/optimizer.safetensors")
    state.pop(next(name for name in state if name.endswith(".m")))
    save_file(state, path / "apollod/optimizer.safetensors")
    record = json.loads((path / "apollod/checkpoint.json").read_bytes())
    record["files"]["apollod/optimizer.safetensors"] = (path / "apollod/optimizer.safetensors").stat().st_size
    (path / "apollod/checkpoint.json").write_text(json.dumps(record))
    trainer.attach(memory, SETTINGS, m.Bound, fresh=False)
    refused = trainer.ask(m.Restore(str(path), memory.manifest.model_dir, True, ""), m.Refused)
    assert "1 missing" in refused.reason


# --- weights that are no numbers, memory that is not there ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bits"), cases([(MATRIX, 0x7FC0), (CAST, 0xFF80)], [(MATRIX, 0xFF80), (CAST, 0x7FC0)])
)
def test_weights_that_are_no_numbers_are_not_trained_and_not_kept(
    bound: Trainer, memory: Memory, tmp_path: Path, name: str, bits: int
) -> None:
    bound.step(1, EXAMPLES[0])
    bound.checkpoint(1, tmp_path / "1")
    memory.span(name).view("<u2")[-1] = bits  # the upper half of a float32 as well
    written = bound.checkpoint(2, tmp_path / "2")
    assert written.damaged and "NaN or infinity" in written.error and name in written.error
    assert not (tmp_path / "2").exists()
    bound.attach(memory, SETTINGS, m.Bound, fresh=False)
    assert bound.restore(tmp_path / "1", memory).fingerprint  # over the damaged ones
    assert bound.step(2, EXAMPLES[1]).applied


def test_a_base_model_with_weights_that_are_no_numbers_is_refused(
    trainer: Trainer, smaller_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(smaller_model, broken := tmp_path / "broken")
    rewrite(broken, lambda tensors: tensors[MATRIX].view(-1)[3].fill_(float("nan")))
    memory = Memory.of(broken)
    trainer.attach(memory, SETTINGS, m.Bound)
    refused = trainer.ask(m.Restore("", str(broken), False, ""), m.Refused)
    assert "NaN or infinity" in refused.reason and MATRIX in refused.reason and refused.hint


def address_space(process: Trainer, key: str) -> int:
    """Bytes of VmSize or VmPeak."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{key}:"))) << 10


def with_room(process: Trainer, bytes_: int) -> None:
    """Let the address space grow by no more than this: torch's allocator then fails for real."""
    limit = address_space(process, "VmSize") + bytes_
    resource.prlimit(process.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


LONG = m.OptimizerSettings(rank=16, max_tokens=1 << 16)


ONEDNN = "could not create a primitive"
STARVED_LR = 2e-3
STARVING = f"""
import runpy, threading
import apollod.trainer.message_loop as loop
real, starved = loop.run_step, []
def run_step(attached, optimizer, batch, step, lr, *given, **named):
    if lr == {STARVED_LR}:
        starved.append(threading.get_native_id())
    if threading.get_native_id() in starved:
        raise RuntimeError({ONEDNN!r})
    return real(attached, optimizer, batch, step, lr, *given, **named)
loop.run_step = run_step
runpy.run_module("apollod.trainer", run_name="__main__")
"""


def test_out_of_memory_before_anything_is_written_costs_no_restart(memory: Memory, tmp_path: Path) -> None:
    """The same trainer goes on to the bits of one that never saw the example; also where gradients of a first example
    were there already, and where it was oneDNN that found none, which goes on failing in the same thread
    (unit/trainer/test_out_of_memory.py): steps of one learning rate do that here."""
    long = parse_line(json.dumps({"text": "The lighthouse keeper counts the waves. " * 400}).encode()).canonical
    calm = Memory.of(Path(memory.manifest.model_dir))
    with Trainer(tmp_path) as other:
        other.attach(calm, LONG, m.Bound)
        expected = [other.step(step, EXAMPLES[step - 1]).fingerprint for step in (1, 2)]
    with Trainer(tmp_path, command=("-c", STARVING)) as process:
        process.attach(memory, LONG, m.Bound)
        assert process.step(1, EXAMPLES[0]).fingerprint == expected[0]
        before = memory.bytes.copy()
        for _ in range(2):
            starved = process.ask(m.Step(2, process.examples(EXAMPLES[0]), STARVED_LR), m.StepFailure)
            assert starved.out_of_memory and not starved.torn and ONEDNN in starved.reason
        for several in (process.examples(long, EXAMPLES[0]), process.examples(EXAMPLES[0], long)):
            with_room(process, 20 << 20)  # for the stack of a thread (8 MiB), not for the example
            failed = process.ask(m.Step(2, several, 1e-3), m.StepFailure)
            assert failed.out_of_memory and not failed.torn
            assert "out of memory in a step over" in failed.reason and "in 2 examples" in failed.reason
            assert "gradient_checkpointing" in failed.reason
            assert np.array_equal(memory.bytes, before)
            resource.prlimit(process.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert process.step(2, EXAMPLES[1]).fingerprint == expected[1]
        assert process.process.poll() is None


def test_weights_torn_by_a_lack_of_memory_are_brought_back(smaller_model: Path, tmp_path: Path) -> None:
    """A long prompt before a short answer needs most in the backward pass, when some parameters have been updated
    already. How much is measured with a trainer that has enough; others get less, more after one that fails before it
    writes, less after one that has enough, until one fails half way. This model is so small that all its gradients
    would wait for each other until the end: here none does, which changes no bit."""
    impatient = (
        "import runpy; import apollod.trainer.optim.backward_updates as updates; updates.WAITING_BYTES = 0\n"
        "runpy.run_module('apollod.trainer', run_name='__main__')"
    )
    long = parse_line(
        json.dumps({"prompt": "The keeper counts the waves. " * 300, "completion": " Yes."}).encode()
    ).canonical

    def begun(process: Trainer, memory: Memory) -> list[m.StepExample]:
        process.attach(memory, LONG, m.Bound)
        process.step(1, EXAMPLES[0])
        return process.examples(long)

    with Trainer(tmp_path, command=("-c", impatient)) as calm:
        examples, start = begun(calm, Memory.of(smaller_model)), address_space(calm, "VmSize")
        whole = calm.ask(m.Step(2, examples, 1e-3), m.StepDone).fingerprint
        needed = address_space(calm, "VmPeak") - start
    too_little, enough = 0.0, 1.9
    for _ in range(10):
        share = (too_little + enough) / 2
        torn = Memory.of(smaller_model)
        with Trainer(tmp_path, command=("-c", impatient)) as victim:
            examples = begun(victim, torn)
            before = torn.bytes.copy()
            with_room(victim, int(share * needed))
            answer = victim.ask(m.Step(2, examples, 1e-3), m.StepFailure | m.StepDone)
            if isinstance(answer, m.StepDone):
                enough = share
                continue
            assert answer.out_of_memory and (answer.torn or np.array_equal(torn.bytes, before))
            if not answer.torn:
                too_little = share
                continue
            assert victim.process.wait(20) == 70
        if not np.array_equal(torn.bytes, before):
            break
    else:
        pytest.fail("memory never ran out while weights were written")
    with Trainer(tmp_path) as second:
        assert second.attach(torn, LONG, m.Bound, fresh=False).fingerprint not in (whole, on_disk(smaller_model))
        assert second.restore(None, torn).fingerprint == on_disk(smaller_model)
        second.step(1, EXAMPLES[0])
        assert np.array_equal(torn.bytes, before)
        assert second.ask(m.Step(2, second.examples(long), 1e-3), m.StepDone).fingerprint == whole


# --- examples -----------------------------------------------------------------------------------------------------


def test_bad_examples_are_refused_one_by_one(trainer: Trainer, memory: Memory) -> None:
    trainer.attach(memory, msgspec.structs.replace(SETTINGS, max_tokens=20), m.Bound)
    records = [
        EXAMPLES[0],
        chat("Why?", "Because of the lighthouse, " * 20),
        b"{}",
        chat("Who are you? " * 20, "I am."),
    ]
    good, long, broken, cut = trainer.ask(m.Encode([(str(i), r) for i, r in enumerate(records)]), m.EncodeDone).results
    assert (good.example, good.refused) == ("0", "")
    assert good.digest
    assert "the answer alone has" in long.refused
    assert "max_tokens is 20" in long.refused
    assert "no canonical record" in broken.refused
    assert (cut.refused, cut.tokens) == ("", 20)
    assert cut.cut > 0
    assert trainer.step(1, EXAMPLES[0]).applied


# --- checkpoints --------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_the_source_directory_with_other_weights(
    bound: Trainer, smaller_model: Path, tmp_path: Path
) -> None:
    bound.checkpoint(0, tmp_path / "0")
    assert not [f.name for f in smaller_model.iterdir() if (tmp_path / "0" / f.name).read_bytes() != f.read_bytes()]
    done = bound.step(1, EXAMPLES[0])
    written = bound.checkpoint(1, tmp_path / "1")
    assert written.error == ""
    assert written.fingerprint == done.fingerprint == on_disk(tmp_path / "1")
    assert written.bytes == sum(f.stat().st_size for f in (tmp_path / "1").rglob("*") if f.is_file())
    record = json.loads((tmp_path / "1" / "apollod" / "checkpoint.json").read_bytes())
    assert (record["step"], record["fingerprint"], record["model"]) == (1, done.fingerprint, smaller_model.name)


def test_transformers_loads_a_checkpoint(bound: Trainer, memory: Memory, tmp_path: Path) -> None:
    bound.step(1, EXAMPLES[0])
    bound.checkpoint(1, tmp_path / "1")
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "1", dtype="auto")
    state = model.state_dict()
    for entry in memory.manifest.tensors:
        here = torch.from_numpy(memory.span(entry.name)).view(getattr(torch, entry.dtype)).view(entry.shape)
        assert state[entry.name].dtype == torch.bfloat16
        assert torch.equal(state[entry.name].to(here.dtype), here), entry.name


def test_a_checkpoint_replaces_an_older_one_and_leaves_nothing_else(bound: Trainer, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "1"
    (path.with_name("1.tmp-99999") / "apollod").mkdir(parents=True)  # of a process that was killed
    bound.checkpoint(1, path)
    done = bound.step(2, EXAMPLES[0])
    assert bound.checkpoint(1, path).fingerprint == done.fingerprint == on_disk(path)
    assert [f.name for f in path.parent.iterdir()] == ["1"]


def test_a_checkpoint_that_cannot_be_written_is_reported(bound: Trainer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    written = bound.checkpoint(1, tmp_path / "file" / "1")
    assert "cannot be written" in written.error
    assert bound.step(1, EXAMPLES[0]).applied


def test_restoring_a_checkpoint_and_the_base_model(
    bound: Trainer, memory: Memory, smaller_model: Path, tmp_path: Path
) -> None:
    first = [bound.step(step, EXAMPLES[step % 4]).fingerprint for step in range(1, 5)]
    bound.checkpoint(4, tmp_path / "4")
    fifth = bound.step(5, EXAMPLES[0]).fingerprint
    restored = bound.restore(tmp_path / "4", memory, fingerprint=first[3])
    assert restored.fingerprint == first[3]
    assert restored.state_bytes > 0
    assert bound.step(5, EXAMPLES[0]).fingerprint == fifth
    assert bound.restore(None, memory).fingerprint == on_disk(smaller_model)
    assert [bound.step(step, EXAMPLES[step % 4]).fingerprint for step in range(1, 5)] == first


def test_the_optimizer_alone_is_restored_where_memory_holds_the_weights(
    bound: Trainer, memory: Memory, tmp_path: Path
) -> None:
    bound.step(1, EXAMPLES[0])
    bound.checkpoint(1, tmp_path / "1")
    second = bound.step(2, EXAMPLES[1]).fingerprint
    bound.restore(tmp_path / "1", memory)
    bound.attach(memory, SETTINGS, m.Bound, fresh=False)
    bound.restore(tmp_path / "1", memory, weights=False)
    assert bound.step(2, EXAMPLES[1]).fingerprint == second
    refused = bound.ask(m.Restore(str(tmp_path / "1"), memory.manifest.model_dir, False, ""), m.Refused)
    assert second in refused.reason


def test_a_checkpoint_of_other_settings_is_refused(bound: Trainer, memory: Memory, tmp_path: Path) -> None:
    bound.step(1, EXAMPLES[0])
    bound.checkpoint(1, tmp_path / "1")
    bound.attach(memory, msgspec.structs.replace(SETTINGS, rank=8), m.Bound, fresh=False)
    before = memory.bytes.copy()
    refused = bound.ask(m.Restore(str(tmp_path / "1"), memory.manifest.model_dir, True, ""), m.Refused)
    assert refused.what == "restore"
    assert "rank = 16" in refused.reason
    assert "8" in refused.reason
    assert np.array_equal(before, memory.bytes)


KINDS = {
    "adamw": m.OptimizerSettings("adamw"),
    "adamw-bf16": m.OptimizerSettings("adamw", moments="bfloat16"),
    "adafactor": m.OptimizerSettings("adafactor"),
    "apollo-master": m.OptimizerSettings(rank=16, rounding="master", moments="bfloat16"),
    "adamw8bit": m.OptimizerSettings("adamw8bit"),
}
EIGHT_BIT = importlib.util.find_spec("bitsandbytes") is not None


@pytest.mark.parametrize(
    "kind",
    [
        k if k != "adamw8bit" or EIGHT_BIT else pytest.param(k, marks=pytest.mark.skip(reason="no bitsandbytes"))
        for k in KINDS
    ],
)
def test_every_optimizer_learns_and_is_restored_to_the_bit(
    trainer: Trainer, memory: Memory, smaller_model: Path, tmp_path: Path, kind: str
) -> None:
    """After its checkpoint, and after the base model: a float32 master copy must not outlive the weights it belongs
    to."""
    trainer.attach(memory, KINDS[kind], m.Bound)
    before = memory.bytes.copy()
    done = [trainer.step(step, EXAMPLES[step % 4], lr=3e-3) for step in (1, 2)]
    first = [d.fingerprint for d in done]
    assert not np.array_equal(before, memory.bytes) and not any(d.skipped_nonfinite for d in done)
    assert not (memory.span(CAST).view("<u4") & 0xFFFF).any()
    trainer.checkpoint(2, tmp_path / "2")
    third, fourth = (trainer.step(step, EXAMPLES[step % 4], lr=3e-3).fingerprint for step in (3, 4))
    assert trainer.restore(tmp_path / "2", memory, fingerprint=first[1]).state_bytes > 0
    assert [trainer.step(step, EXAMPLES[step % 4], lr=3e-3).fingerprint for step in (3, 4)] == [third, fourth]
    assert trainer.restore(None, memory).fingerprint == on_disk(smaller_model)
    assert [trainer.step(step, EXAMPLES[step % 4], lr=3e-3).fingerprint for step in (1, 2)] == first


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "adamw"}, ["optimizer = 'apollo'", "'adamw'"]),
        ({"seed": 5}, ["seed = 0", "5"]),
        ({"moments": "bfloat16"}, ["moments = 'float32'", "'bfloat16'"]),
        ({"rounding": "master"}, ["rounding = 'stochastic'", "'master'"]),
        ({}, ["state of version 99", "1"]),
    ],
)
def test_state_that_does_not_fit_is_refused_with_both_values_and_nothing_is_written(
    bound: Trainer, memory: Memory, tmp_path: Path, change: dict[str, Any], said: list[str]
) -> None:
    bound.checkpoint(0, path := tmp_path / "0")
    if not change:
        record = json.loads((path / "apollod/checkpoint.json").read_bytes())
        (path / "apollod/checkpoint.json").write_text(json.dumps(record | {"state_version": 99}))
    bound.attach(memory, msgspec.structs.replace(SETTINGS, **change), m.Bound, fresh=False)
    bound.step(1, EXAMPLES[0])
    before = memory.bytes.copy()
    refused = bound.ask(m.Restore(str(path), memory.manifest.model_dir, True, ""), m.Refused)
    assert all(words in refused.reason for words in said) and refused.hint
    assert np.array_equal(before, memory.bytes)


def test_settings_from_before_there_was_a_choice_are_read(bound: Trainer, memory: Memory, tmp_path: Path) -> None:
    first = bound.step(1, EXAMPLES[0]).fingerprint
    bound.checkpoint(1, path := tmp_path / "1")
    record = json.loads((path / "apollod/checkpoint.json").read_bytes())
    del record["optimizer"]["moments"], record["optimizer"]["limiter"], record["optimizer"]["limiter_rule"]
    (path / "apollod/checkpoint.json").write_text(json.dumps(record))
    assert bound.restore(path, memory).fingerprint == first


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (m.OptimizerSettings(rank=4096), "rank = 4096 is above the smaller side of every matrix"),
        (m.OptimizerSettings("adafactor", moments="bfloat16"), "adafactor has no choice of moments"),
        pytest.param(
            m.OptimizerSettings("adamw8bit"),
            "needs the package bitsandbytes",
            marks=pytest.mark.skipif(EIGHT_BIT, reason="bitsandbytes is installed"),
        ),
    ],
)
def test_optimizers_that_cannot_work_are_refused_and_the_trainer_stays(
    trainer: Trainer, memory: Memory, settings: m.OptimizerSettings, said: str
) -> None:
    refused = trainer.attach(memory, settings, m.Refused)
    assert said in refused.reason and refused.hint
    trainer.attach(memory, SETTINGS, m.Bound)
    assert trainer.step(1, EXAMPLES[0]).applied


def test_triton_is_refused_without_a_gpu_and_what_runs_is_recorded(trainer: Trainer, memory: Memory) -> None:
    def attach(kernels: m.Kernels, kind: type) -> Any:
        trainer.send(m.Share(memory.manifest.storages[0].bytes), memory.fd)
        return trainer.ask(m.Attach(memory.manifest, SETTINGS, True, kernels=kernels), kind)

    refused = attach("triton", m.Refused)
    assert "Triton's kernels cannot run" in refused.reason and 'kernels = "auto"' in refused.hint
    for kernels in ("auto", "eager"):
        assert attach(kernels, m.Bound).versions["kernels"] == "eager"
    assert trainer.step(1, EXAMPLES[0]).applied


def test_a_step_in_float32_products_is_the_same_wherever_it_is_run_again(
    trainer: Trainer, smaller_model: Path, tmp_path: Path
) -> None:
    """On a machine whose own choice is another; and what is chosen there is what was said when it was bound."""
    examples = trainer_examples(trainer, smaller_model)

    def learned(process: Trainer, own: m.Products, asked: Any) -> str:
        memory = Memory.of(smaller_model)
        assert process.attach(memory, SETTINGS, m.Bound, products=own).products == own
        process.restore(None, memory, weights=False)
        return process.ask(m.Step(1, examples, 1e-3, products=asked), m.StepDone).fingerprint

    wide, narrow = learned(trainer, "float32", None), learned(trainer, "bf16", None)
    assert wide != narrow
    assert (learned(trainer, "bf16", "float32"), learned(trainer, "float32", "bf16")) == (wide, narrow)
    with Trainer(tmp_path, threads=1, environment={"ONEDNN_MAX_CPU_ISA": "AVX2"}) as other:
        bound = other.attach(Memory.of(smaller_model), SETTINGS, m.Bound)
        assert bound.products == "float32", "by itself, where there are no instructions for bf16"
        assert learned(other, "float32", None) == wide


def trainer_examples(trainer: Trainer, model: Path) -> list[m.StepExample]:
    trainer.attach(Memory.of(model), SETTINGS, m.Bound)
    return trainer.examples(EXAMPLES[0])


def corrupt_weights(path: Path) -> None:
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(data)


def shorten_weights(path: Path) -> None:
    os.truncate(path / "model.safetensors", (path / "model.safetensors").stat().st_size - 1)


def remove_state(path: Path) -> None:
    (path / "apollod" / "optimizer.safetensors").unlink()


def remove_record(path: Path) -> None:
    (path / "apollod" / "checkpoint.json").unlink()


def drop_tensor(path: Path) -> None:
    rewrite(path, lambda tensors: tensors.pop("lm_head.weight"))
    record = path / "apollod" / "checkpoint.json"
    fields = json.loads(record.read_bytes())
    fields["files"]["model.safetensors"] = (path / "model.safetensors").stat().st_size
    fields["fingerprint"] = on_disk(path)  # whole and sound, only of another model
    record.write_text(json.dumps(fields))


@pytest.mark.parametrize("damage", [corrupt_weights, shorten_weights, remove_state, remove_record, drop_tensor])
def test_a_damaged_checkpoint_is_refused_before_anything_is_written(
    bound: Trainer, memory: Memory, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    bound.step(1, EXAMPLES[0])
    bound.checkpoint(1, tmp_path / "1")
    bound.step(2, EXAMPLES[0])
    damage(tmp_path / "1")
    before = memory.bytes.copy()
    refused = bound.ask(m.Restore(str(tmp_path / "1"), memory.manifest.model_dir, True, ""), m.Refused)
    assert refused.reason
    assert refused.hint
    assert np.array_equal(before, memory.bytes)


# --- processes ----------------------------------------------------------------------------------------------------


def test_nothing_heavy_is_imported_before_hello() -> None:
    code = (
        "import apollod.trainer.__main__, sys; sys.exit(bool({'torch', 'transformers', 'numpy'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys;"
        "subprocess.run([sys.executable, '-m', 'apollod.trainer'], env={**os.environ, 'APOLLOD_PARENT_PID': "
        "str(os.getpid())})"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(60)
        parent = subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "APOLLOD_SOCKET": str(tmp_path / "s")}
        )
        connection, _ = listener.accept()
    with connection:
        connection.settimeout(60)
        assert connection.recv(1 << 16)  # hello
        parent.kill()
        parent.wait()
        assert not connection.recv(1 << 16)  # the kernel closed it, though nobody closed this end


def test_replay_after_kill_9_gives_the_same_bits_on_a_busy_machine(
    bound: Trainer, memory: Memory, smaller_model: Path, tmp_path: Path
) -> None:
    expected = [bound.step(step, EXAMPLES[step % 4]).fingerprint for step in range(1, 9)]

    with Trainer(tmp_path) as victim:
        crashed = Memory.of(smaller_model)
        victim.attach(crashed, SETTINGS, m.Bound)
        for step in range(1, 4):
            victim.step(step, EXAMPLES[step % 4])
        written = victim.checkpoint(3, tmp_path / "3")
        victim.step(4, EXAMPLES[0])
        digest = victim.ask(m.Encode([("x", EXAMPLES[1])]), m.EncodeDone).results[0].digest
        victim.send(
            m.Step(5, [m.StepExample("x", EXAMPLES[1], digest)], 1e-3)
        )  # killed inside this step, or just before
        victim.kill()

    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with Trainer(tmp_path) as second:
            second.attach(crashed, SETTINGS, m.Bound, fresh=False)
            second.restore(tmp_path / "3", crashed, fingerprint=written.fingerprint)
            replayed = [second.step(step, EXAMPLES[step % 4]).fingerprint for step in range(4, 9)]
            assert replayed == expected[3:]
            assert np.array_equal(memory.bytes, crashed.bytes)
            second.process.send_signal(signal.SIGINT)  # Ctrl-C reaches the whole group: not ours to act on
            assert second.step(9, EXAMPLES[1]).applied
            second.send(m.Quit())
            assert second.process.wait(20) == 0
    finally:
        burner.kill()
        burner.wait()


def test_a_changed_tokenizer_ends_the_process_without_a_write(
    smaller_model: Path, memory: Memory, tmp_path: Path
) -> None:
    with Trainer(tmp_path) as process:
        process.attach(memory, SETTINGS, m.Bound)
        before = memory.bytes.copy()
        failed = process.ask(m.Step(1, [m.StepExample("x", EXAMPLES[0], "0" * 32)], 1e-3), m.StepFailure)
        assert "tokenizer" in failed.reason
        assert process.process.wait(20) == 70
        assert np.array_equal(before, memory.bytes)
