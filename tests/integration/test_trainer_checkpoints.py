"""Checkpoints of a real trainer process: written into the model directory while steps go on, and every way back."""

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.effort import cases
from support.model_memory import Memory
from support.trainer_host import Trainer, restore

from apollod.adapters import checkpoint_recovery
from apollod.cli import checkpoint_tool
from apollod.errors import WeightsLocked
from apollod.failpoints import POINTS, VARIABLE
from apollod.store.access import REDO, WeightsLock, interrupted
from apollod.store.entry import entries, read_entry
from apollod.store.fingerprint import directory_fingerprint
from apollod.store.history import History
from apollod.store.sync import recover
from apollod.wire import messages as m
from apollod.wire.records import parse_line

SETTINGS = m.OptimizerSettings(rank=16)
MATRIX = "model.layers.0.mlp.up_proj.weight"
LR = 1e-3
EXAMPLES = [
    parse_line(json.dumps({"prompt": prompt, "completion": completion}).encode()).canonical
    for prompt, completion in [
        ("The lighthouse is kept by", " Mara Quill."), ("The bakery opens at", " five."),
        ("The market is held on", " Thursday."),
        ("The ferry is called", " the Grey Heron."),
    ]
]  # fmt: skip


def changed(*statements: str) -> tuple[str, ...]:
    """A trainer in which something else is done, for what a test cannot bring about from outside."""
    lines = [*statements, "import runpy; runpy.run_module('apollod.trainer', run_name='__main__')"]
    return ("-c", "\n".join(lines))


SLOW_S = 1.0
SLOW = changed(
    "import time, apollod.trainer.checkpoints.write_checkpoint as c; put_weights = c.put_weights",
    f"c.put_weights = lambda *args, **named: (time.sleep({SLOW_S}), put_weights(*args, **named))[1]",
)
"""A checkpoint takes a while, for what comes in the middle of it."""


def until(go: Path) -> tuple[str, ...]:
    """A trainer whose checkpoint is written once the file `go` is there, or after a minute."""
    return changed(
        "import os, time, apollod.trainer.checkpoints.write_checkpoint as c; put_weights = c.put_weights",
        f"def wait():\n for _ in range(6000):\n  if os.path.exists({str(go)!r}): return\n  time.sleep(0.01)",
        "c.put_weights = lambda *args, **named: (wait(), put_weights(*args, **named))[1]",
    )


SLOW_WITHOUT_ROOM = changed(
    "import time, apollod.trainer.checkpoints.write_checkpoint as c\n"
    "import apollod.trainer.checkpoints.weights_snapshot as s\nput_weights = c.put_weights",
    f"c.put_weights = lambda *args, **named: (time.sleep({SLOW_S}), put_weights(*args, **named))[1]",
    "s.available_bytes = lambda: 0",
)


class Life:
    """A model directory of its own, memory, checkpoints, and a trainer that may be replaced."""

    def __init__(self, trainer: Trainer, model: Path, settings: m.OptimizerSettings = SETTINGS) -> None:
        self.model, self.settings, self.trainer = model, settings, trainer
        self.checkpoints = model.parent / "checkpoints"
        self.memory = Memory.of(model)
        self.base = self.take(trainer).fingerprint
        self.fingerprints = {0: self.base}

    def take(self, trainer: Trainer, fresh: bool = True) -> m.Bound:
        self.trainer = trainer
        return trainer.attach(self.memory, self.settings, m.Bound, fresh)

    def entry(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def steps(self, first: int, last: int) -> list[str]:
        found = [self.trainer.step(step, EXAMPLES[step % 4], LR).fingerprint for step in range(first, last + 1)]
        self.fingerprints |= dict(zip(range(first, last + 1), found, strict=True))
        return found

    def checkpoint(self, step: int, full: bool = False) -> m.CheckpointWritten:
        written = self.trainer.checkpoint(step, self.entry(step), self.model, full)
        assert written.error == "", written
        return written

    def settled(self) -> None:
        """Wait until the last checkpoint is settled: its answer came before that."""
        while (self.model / REDO).exists():
            time.sleep(0.01)

    def restore(self, step: int, base: Path | None = None) -> m.Restored:
        path = self.entry(step) if step else None
        return self.trainer.restore(path, self.memory, True, self.fingerprints[step], self.checkpoints, base)

    def refused(self, step: int, base: Path | None = None) -> m.Refused:
        message = restore(
            self.entry(step) if step else None, self.memory, True, self.fingerprints[step], self.checkpoints, base
        )
        return self.trainer.ask(message, m.Refused)

    def on_disk(self) -> str:
        return directory_fingerprint(self.model)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(tmp_path_factory.mktemp("socket")) as process:
        yield process


@pytest.fixture
def model(smaller_model: Path, tmp_path: Path) -> Path:
    shutil.copytree(smaller_model, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def life(shared: Trainer, model: Path) -> Life:
    return Life(shared, model)


@pytest.fixture
def deep(life: Life) -> Life:
    """Steps 1 to 7, checkpoints at 2, 4 and 6, the last one settled: its files are the test's to change."""
    for last in (2, 4, 6):
        life.steps(last - 1, last)
        life.checkpoint(last)
    life.steps(7, 7)
    life.settled()
    return life


def split(model: Path, shards: int = 3) -> None:
    """As Hugging Face shards a model: files of their own and an index."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / "model.safetensors")
    names = list(tensors)
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name].clone() for name in names[number::shards]}
        save_file(part, model / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def loads(model: Path, memory: Memory) -> None:
    """transformers loads the directory, and has the weights that are in memory."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    state = AutoModelForCausalLM.from_pretrained(model, dtype="auto", local_files_only=True).state_dict()
    assert AutoTokenizer.from_pretrained(model, local_files_only=True).encode("lighthouse")
    for entry in memory.manifest.tensors:
        here = torch.from_numpy(memory.span(entry.name).copy()).view(getattr(torch, entry.dtype)).view(entry.shape)
        assert torch.equal(state[entry.name].to(here.dtype), here), entry.name


def others(model: Path) -> dict[str, bytes]:
    """Everything but the weights and what is ours."""
    return {f.name: f.read_bytes() for f in model.iterdir() if f.is_file() and f.suffix != ".safetensors"}


def headers(model: Path) -> dict[str, bytes]:
    found = {}
    for file in model.glob("*.safetensors"):
        raw = file.read_bytes()
        found[file.name] = raw[: 8 + int.from_bytes(raw[:8], "little")]
    return found


# --- writing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharded", [False, True])
def test_a_checkpoint_is_the_model_directory_with_other_weights_and_a_way_back(
    shared: Trainer, model: Path, sharded: bool
) -> None:
    if sharded:
        split(model)
    untouched, heads = others(model), headers(model)
    life = Life(shared, model)
    life.steps(1, 2)
    written = life.checkpoint(2)
    assert written.fingerprint == life.fingerprints[2] == life.on_disk() != life.base
    assert (others(model), headers(model)) == (untouched, heads)
    loads(model, life.memory)
    entry = read_entry(life.entry(2))
    assert (entry.number, entry.step, entry.fingerprint, entry.full) == (1, 2, life.fingerprints[2], False)
    assert (entry.before_step, entry.before_fingerprint, entry.model) == (0, life.base, "model")
    assert entry.files.keys() == {"apollod/optimizer.safetensors", "apollod/undo.delta"}
    assert written.bytes == sum(f.stat().st_size for f in life.entry(2).rglob("*") if f.is_file())
    assert written.delta_bytes == entry.files["apollod/undo.delta"] and written.written_bytes > 0
    assert written.files.keys() == heads.keys() and 0 < written.changed_blocks <= written.blocks
    life.settled()
    assert not list(life.checkpoints.glob("*.tmp*")) and not list(model.glob(".apollod/redo*"))
    life.steps(3, 3)
    life.checkpoint(3)
    entry = read_entry(life.entry(3))
    assert (entry.number, entry.before_step, entry.before_fingerprint) == (2, 2, life.fingerprints[2])
    assert life.on_disk() == life.fingerprints[3]


@pytest.mark.parametrize("stored_twice", [False, True])
def test_tied_tensors_are_written_under_the_names_that_the_files_have(
    shared: Trainer, model: Path, tmp_path: Path, stored_twice: bool
) -> None:
    from safetensors.torch import load_file, save_file

    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    tensors = load_file(model / "model.safetensors")
    tensors.pop(head)
    if stored_twice:
        tensors[head] = tensors[embedding].clone()
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    memory = Memory.of(model)
    held = tuple(tensor for tensor in memory.manifest.tensors if tensor.name != head)
    manifest = msgspec.structs.replace(memory.manifest, tensors=held, tied={head: embedding})
    shared.attach(memory, SETTINGS, m.Bound, manifest=manifest)
    before, done = headers(model), shared.step(1, EXAMPLES[0])
    written = shared.checkpoint(1, tmp_path / "checkpoints/1", model)
    assert (written.error, written.fingerprint) == ("", done.fingerprint)
    assert directory_fingerprint(model) == done.fingerprint and headers(model) == before
    written_out = load_file(model / "model.safetensors")
    assert not bool((written_out[embedding] == tensors[embedding]).all()), "it was trained"
    assert bool((written_out.get(head, written_out[embedding]) == written_out[embedding]).all())


def test_a_checkpoint_is_of_its_step_while_steps_go_on(smaller_model: Path, life: Life, tmp_path: Path) -> None:
    """Three steps are sent right behind it. They are done before it is, give the bits that they give without one,
    and none of them is in it."""
    expected = life.steps(1, 6)
    shutil.copytree(smaller_model, model := tmp_path / "slow" / "model")
    with Trainer(tmp_path, command=until(go := tmp_path / "go")) as trainer:
        slow = Life(trainer, model)
        slow.steps(1, 3)
        behind = [m.Step(step, trainer.examples(EXAMPLES[step % 4]), LR) for step in (4, 5, 6)]
        for message in [m.WriteCheckpoint(3, str(slow.entry(3)), str(model)), *behind]:
            trainer.send(message)
        came = [trainer.receive_any() for _ in range(3)]
        assert [step.fingerprint for step in came if isinstance(step, m.StepDone)] == expected[3:], "they waited for it"
        go.touch()
        written = trainer.receive(m.CheckpointWritten)
    assert (written.error, written.fingerprint) == ("", expected[2]) and directory_fingerprint(model) == expected[2]
    assert written.held_s < 0.5 * written.seconds, "steps were held for a copy of the weights alone"


def test_without_memory_for_a_copy_a_step_waits_until_all_is_written_and_says_so(model: Path, tmp_path: Path) -> None:
    with Trainer(tmp_path, command=SLOW_WITHOUT_ROOM) as trainer:
        life = Life(trainer, model)
        life.steps(1, 1)
        behind = m.Step(2, trainer.examples(EXAMPLES[2]), LR)
        for message in (m.WriteCheckpoint(1, str(life.entry(1)), str(model)), behind):
            trainer.send(message)
        came = [trainer.receive_any() for _ in range(2)]
    written = next(message for message in came if isinstance(message, m.CheckpointWritten))
    assert (written.error, written.fingerprint) == ("", life.fingerprints[1]) and life.on_disk() == life.fingerprints[1]
    assert written.held_s > 0.8 * SLOW_S
    assert any(isinstance(message, m.StepDone) and message.applied for message in came)


def status(process: Trainer, key: str) -> int:
    text = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{key}:"))) << 10


def test_the_copy_is_given_back(shared: Trainer, tiny_model: Path, tmp_path: Path) -> None:
    """Of a model that is large enough for a copy to show; the first ones let the allocator take what it keeps."""
    shutil.copytree(tiny_model, model := tmp_path / "model")
    life = Life(shared, model)
    size = (model / "model.safetensors").stat().st_size
    for step in range(1, 11):
        if step == 8:
            before = status(shared, "VmSize")
        life.steps(step, step)
        life.checkpoint(step)
    assert status(shared, "VmSize") - before < 0.5 * size


def read_bytes(process: Trainer) -> int:
    """What it has read so far, of whatever (proc_pid_io(5), rchar)."""
    text = Path(f"/proc/{process.process.pid}/io").read_text()
    return int(text.split("rchar:")[1].split()[0])


def test_of_the_old_weights_only_what_changed_is_read(shared: Trainer, tiny_model: Path, tmp_path: Path) -> None:
    """The first checkpoint reads all of the model directory, once, to know its blocks. Every one reads the redo record
    back. Of the smaller model the tables that are read beside it would be too large a share."""
    shutil.copytree(tiny_model, model := tmp_path / "model")
    life = Life(shared, model, m.OptimizerSettings(rank=16, layers="0"))
    size, read = sum(file.stat().st_size for file in model.glob("*.safetensors")), []
    for step in (1, 2, 3):
        life.steps(step, step)
        before = read_bytes(shared)
        changed = life.checkpoint(step).changed_blocks
        read.append(read_bytes(shared) - before)
    assert 0 < changed * 4096 < 0.5 * size, "the steps changed too much to tell"
    assert size < read[0] < 1.3 * (size + changed * 4096)
    assert max(read[1:]) < 2.2 * changed * 4096 + 0.1 * size < size


def test_quit_waits_for_a_checkpoint_and_a_signal_leaves_it_to_recovery(smaller_model: Path, tmp_path: Path) -> None:
    for number, leave in enumerate((m.Quit(), signal.SIGTERM)):
        shutil.copytree(smaller_model, model := tmp_path / str(number) / "model")
        with Trainer(tmp_path, command=SLOW) as trainer:
            life = Life(trainer, model)
            life.steps(1, 1)
            trainer.send(m.WriteCheckpoint(1, str(life.entry(1)), str(model)))
            if isinstance(leave, m.Quit):
                trainer.send(leave)
                assert trainer.receive(m.CheckpointWritten).fingerprint == life.on_disk() == life.fingerprints[1]
            else:
                wait_until(lambda life=life: life.entry(1).exists())  # type: ignore[misc]
                trainer.process.send_signal(leave)
            assert trainer.process.wait(20) == 0
        recover(model)
        if not isinstance(leave, m.Quit):
            assert life.on_disk() == life.base and History.read(life.checkpoints, model).uncommitted is not None


def wait_until(met: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_the_engine_does_not_hold_is_read_from_files_that_are_replaced_meanwhile(
    shared: Trainer, model: Path, tmp_path: Path
) -> None:
    memory = Memory.of(model)
    tensors = tuple(
        msgspec.structs.replace(t, status="frozen") if t.name == MATRIX else t for t in memory.manifest.tensors
    )
    manifest = msgspec.structs.replace(memory.manifest, tensors=tensors)
    shared.attach(memory, SETTINGS, m.Bound, manifest=manifest)
    hows: set[str] = set()
    with (model / "model.safetensors").open("rb") as first:  # held open: its inode is not given to another file
        for step in (1, 2, 3):
            done = shared.step(step, EXAMPLES[step])
            written = shared.checkpoint(step, tmp_path / f"checkpoints/{step}", model)
            assert (written.error, written.fingerprint) == ("", done.fingerprint)
            assert directory_fingerprint(model) == done.fingerprint
            hows |= set(written.files.values())
        replaced = (model / "model.safetensors").stat().st_ino != os.fstat(first.fileno()).st_ino
        assert replaced == ("rewrite" in hows)
    memory.bytes[:] = 0
    found = shared.ask(
        m.Restore(str(tmp_path / "checkpoints/2"), str(model), True, "", str(tmp_path / "checkpoints")), m.Restored
    )
    assert found.fingerprint == read_entry(tmp_path / "checkpoints/2").fingerprint


def test_a_full_checkpoint_is_a_model_directory_of_its_own(deep: Life, tmp_path: Path) -> None:
    written = deep.checkpoint(7, full=True)
    assert written.fingerprint == directory_fingerprint(deep.entry(7)) == deep.on_disk()
    assert read_entry(deep.entry(7)).full and others(deep.entry(7)) == others(deep.model)
    loads(deep.entry(7), deep.memory)
    expected = deep.steps(8, 9)
    deep.checkpoint(9)
    shutil.rmtree(deep.entry(9))  # the only delta that leads back from the model directory
    deep.fingerprints[9] = ""
    assert deep.restore(7).fingerprint == deep.fingerprints[7]
    assert deep.steps(8, 9) == expected


# --- restoring ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", cases(["apollo", "apollo-master"], ["adamw"]))
def test_every_checkpoint_is_restored_through_the_deltas_and_training_goes_on_to_the_bit(
    shared: Trainer, model: Path, chosen: str
) -> None:
    settings = {
        "apollo": SETTINGS, "adamw": m.OptimizerSettings("adamw"),
        "apollo-master": m.OptimizerSettings(rank=16, rounding="master")
    }[chosen]  # fmt: skip
    life = Life(shared, model, settings)
    for last in (2, 4, 6):
        life.steps(last - 1, last)
        life.checkpoint(last)
    expected = {step: life.fingerprints[step] for step in range(7)}
    for step in (2, 6, 4, 0, 6, 2):
        restored = life.restore(step)
        assert restored.fingerprint == expected[step] and (restored.state_bytes > 0) and not restored.undone
        life.steps(step + 1, step + 2)
        for later in (step + 1, step + 2):
            assert life.fingerprints[later] == expected.setdefault(later, life.fingerprints[later])
    assert life.on_disk() == expected[6], "a restore writes no file"


def test_after_a_rollback_the_history_goes_on_in_the_order_of_writing(deep: Life) -> None:
    """Back to 4, then other steps 8 and 9: their delta leads from 6, which the model directory held."""
    deep.restore(4)
    deep.steps(8, 9)
    deep.checkpoint(9)
    entry = read_entry(deep.entry(9))
    assert (entry.number, entry.before_step) == (4, 6)
    for step in (2, 9, 6, 4, 0):
        assert deep.restore(step).fingerprint == deep.fingerprints[step]


def test_the_untrained_weights_come_from_the_model_directory_the_kept_base_or_backwards(
    life: Life, tmp_path: Path
) -> None:
    shutil.copytree(life.model, base := tmp_path / "base")
    life.steps(1, 2)
    assert life.restore(0).fingerprint == life.base, "the model directory still holds them"
    life.steps(1, 2)
    life.checkpoint(2)
    assert life.restore(0).fingerprint == life.base, "backwards"
    again = life.steps(1, 2)
    shutil.rmtree(life.entry(2))
    assert "were not found" in life.refused(0).reason
    assert life.restore(0, base).fingerprint == life.base, "the base"
    assert life.steps(1, 2) == again, "with a fresh optimizer"


def test_a_redo_that_a_crash_left_is_finished_before_a_restore(model: Path, tmp_path: Path) -> None:
    """Killed between the commit of the sync and its end: the model directory holds half of the new weights."""
    killed = changed("import os, apollod.store.apply as a", "a.Finishing.put = lambda _: os.kill(os.getpid(), 9)")
    with Trainer(tmp_path, command=killed) as trainer:
        life = Life(trainer, model)
        life.steps(1, 2)
        trainer.send(m.WriteCheckpoint(2, str(life.entry(2)), str(model)))
        assert trainer.process.wait(30) == -signal.SIGKILL
    assert (model / ".apollod/redo").exists()
    life.memory.bytes[:] = 0
    with Trainer(tmp_path) as trainer:
        life.take(trainer, fresh=False)
        assert life.restore(2).fingerprint == life.fingerprints[2] == life.on_disk()
        assert not (model / ".apollod/redo").exists()
        assert life.restore(0).fingerprint == life.base


# --- kill -9 ------------------------------------------------------------------------------------------------------

WRITING = [name for name in POINTS if name.startswith("trainer.checkpoint.")]


@pytest.mark.parametrize("point", WRITING)
def test_after_kill_9_at_any_point_the_checkpoint_is_there_or_it_is_not(
    point: str, model: Path, tmp_path: Path
) -> None:
    """The second checkpoint dies. Whatever is found, the model directory loads, the checkpoint before is whole, and
    the same checkpoint is written by the next trainer."""
    with Trainer(tmp_path, environment={VARIABLE: f"{point}:2"}) as trainer:
        life = Life(trainer, model)
        life.steps(1, 2)
        life.checkpoint(2)
        life.steps(3, 4)
        trainer.send(m.WriteCheckpoint(4, str(life.entry(4)), str(model)))
        assert trainer.process.wait(30) == -signal.SIGKILL
    committed = point == "trainer.checkpoint.committed"
    assert life.on_disk() == life.fingerprints[4 if committed else 2]
    with Trainer(tmp_path) as trainer:
        life.take(trainer, fresh=False)
        if committed:
            assert "is a checkpoint already" in trainer.checkpoint(4, life.entry(4), model).error
        else:
            life.restore(2)
            life.steps(3, 4)
            life.checkpoint(4)
        assert [path.name for path, _ in entries(life.checkpoints).whole] == [life.entry(2).name, life.entry(4).name]
        assert sorted(os.listdir(life.checkpoints)) == [life.entry(2).name, life.entry(4).name]
        for step in (4, 0, 2):
            assert life.restore(step).fingerprint == life.fingerprints[step]
    assert life.on_disk() == life.fingerprints[4]


def test_a_directory_that_was_not_committed_goes_when_another_is_written(model: Path, tmp_path: Path) -> None:
    with Trainer(tmp_path, environment={VARIABLE: "trainer.checkpoint.renamed:2"}) as trainer:
        life = Life(trainer, model)
        life.steps(1, 2)
        life.checkpoint(2)
        life.steps(3, 4)
        trainer.send(m.WriteCheckpoint(4, str(life.entry(4)), str(model)))
        assert trainer.process.wait(30) == -signal.SIGKILL
    assert life.entry(4).exists() and History.read(life.checkpoints, model).uncommitted is not None
    with Trainer(tmp_path) as trainer:
        life.take(trainer, fresh=False)
        life.restore(2)
        life.steps(3, 5)
        life.checkpoint(5)
        assert sorted(os.listdir(life.checkpoints)) == [life.entry(2).name, life.entry(5).name]
        assert (entry := read_entry(life.entry(5))).before_step == 2 and entry.before_fingerprint == life.fingerprints[
            2
        ]
        assert life.restore(0).fingerprint == life.base


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_a_full_disk_at_any_phase_leaves_the_old_weights_or_says_that_it_is_doubtful(
    model: Path, tmp_path: Path
) -> None:
    """A limit on the size of files, lower and lower: the record of the sync, the delta, the optimizer's state do not
    fit any more."""
    with Trainer(tmp_path) as trainer:
        life = Life(trainer, model)
        life.steps(1, 2)
        life.checkpoint(2)
        life.steps(3, 4)
        delta = read_entry(life.entry(2)).files["apollod/undo.delta"]
        state = read_entry(life.entry(2)).files["apollod/optimizer.safetensors"]
        whole, failed = (model / "model.safetensors").stat().st_size, 0
        for limit in (whole - 1, whole // 2, delta - 1000, state - 1000, 100_000, 10_000, 1000, 0):
            resource.prlimit(trainer.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            written = trainer.checkpoint(4, life.entry(4), model)
            resource.prlimit(
                trainer.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            assert written.error and not written.doubtful and not written.damaged, limit
            assert any(word in written.error for word in ("cannot be", "File too large")), written.error
            assert os.listdir(life.checkpoints) == [life.entry(2).name] and life.on_disk() == life.fingerprints[2]
            failed += 1
        assert failed == 8
        life.steps(5, 5)
        life.checkpoint(5)
        assert life.on_disk() == life.fingerprints[5]


def test_a_sync_that_fails_after_its_commit_is_doubtful_and_recovery_decides(model: Path, tmp_path: Path) -> None:
    broken = changed(
        "import apollod.store.apply as a",
        "def fail(*args): raise OSError(28, 'No space left on device')",
        "a._put_files = fail",
    )
    with Trainer(tmp_path, command=broken) as trainer:
        life = Life(trainer, model)
        life.steps(1, 2)
        written = trainer.checkpoint(2, life.entry(2), model)
        assert written.doubtful and "committed and not finished" in written.error
        assert life.entry(2).exists()
        assert life.steps(3, 3), "training goes on"
    assert recover(model).applied
    assert life.on_disk() == life.fingerprints[2] and History.read(life.checkpoints, model).uncommitted is None


def test_a_record_that_cannot_be_let_go_is_said_and_recovered_by_the_next_sync(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = changed(
        "import apollod.store.apply as a; put_table, failed = a._put_table, []",
        "def fail(*args):",
        "    if failed: return put_table(*args)",
        "    failed.append(True)",
        "    raise OSError(5, 'Input/output error')",
        "a._put_table = fail",
    )
    with Trainer(tmp_path, command=broken) as trainer:
        life = Life(trainer, model)
        life.steps(1, 2)
        life.checkpoint(2)
        life.steps(3, 3)
        assert life.on_disk() == life.fingerprints[2]
        life.checkpoint(3)
    assert life.on_disk() == life.fingerprints[3] and not (model / REDO).exists()
    said = [line for line in capfd.readouterr().err.splitlines() if "its redo record stays" in line]
    assert len(said) == 1 and "Input/output error" in said[0] and str(life.entry(2)) in said[0]
    assert len(History.read(life.checkpoints, model).held) == 2


SETTLES_SLOWLY = changed(
    "import time, apollod.store.apply as a; settle = a.Finishing.settle",
    "a.Finishing.settle = lambda self: (time.sleep(30), settle(self))[1]",
)


def test_while_it_settles_everybody_reads_the_new_weights_and_a_kill_takes_nothing_back(
    model: Path, tmp_path: Path
) -> None:
    with Trainer(tmp_path, command=SETTLES_SLOWLY) as trainer:
        life = Life(trainer, model)
        life.steps(1, 2)
        life.checkpoint(2)
        assert (model / REDO).exists() and not interrupted(model)
        assert life.on_disk() == life.fingerprints[2]
        assert checkpoint_tool.main(["fingerprint", "--model-dir", str(model)]) == 0
        history = History.read(life.checkpoints, model)
        assert (history.model.problem, history.model.fingerprint) == (
            "",
            life.fingerprints[2],
        ) and history.uncommitted is None
        with pytest.raises(WeightsLocked, match="reads"):
            recover(model)
        trainer.process.kill()
        trainer.process.wait(30)
    assert interrupted(model)
    assert checkpoint_recovery.observe(model, life.entry(2)) == life.fingerprints[2]
    assert checkpoint_recovery.observe(model, life.entry(2)) == life.fingerprints[2], (
        "asked again, for whoever crashed meanwhile"
    )
    assert not interrupted(model) and life.on_disk() == life.fingerprints[2]


def edit_in_place(model: Path) -> None:
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\x00\x3f")


def edit_without_table(model: Path) -> None:
    edit_in_place(model)
    (model / ".apollod/blocks.bin").unlink()


def truncate(model: Path) -> None:
    os.truncate(model / "model.safetensors", (model / "model.safetensors").stat().st_size - 1)


def oversize_header(model: Path) -> None:
    with (model / "model.safetensors").open("r+b") as file:
        file.write((1 << 40).to_bytes(8, "little"))


def lose_file(model: Path) -> None:
    (model / "model.safetensors").unlink()


def damaged_redo(model: Path) -> None:
    (model / ".apollod/redo").write_bytes(b"APLREDO1" + bytes(8192))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (edit_in_place, "changed after sync"), (edit_without_table, "the newest checkpoint left"),
        (truncate, "bytes, its header says"),
        (oversize_header, "header of"), (lose_file, "holds neither"), (damaged_redo, "the redo record"),
    ],
)  # fmt: skip
def test_a_model_directory_that_was_harmed_is_not_overwritten(
    deep: Life, harm: Callable[[Path], None], said: str
) -> None:
    harm(deep.model)
    found = {file.name: file.read_bytes() for file in deep.model.glob("*.safetensors")}
    written = deep.trainer.checkpoint(7, deep.entry(7), deep.model)
    assert said in written.error and not written.doubtful
    assert {file.name: file.read_bytes() for file in deep.model.glob("*.safetensors")} == found
    assert not deep.entry(7).exists() and len(os.listdir(deep.checkpoints)) == 3
    assert deep.steps(8, 8), "training goes on"


def test_a_second_writer_or_a_loader_is_named_and_nothing_is_written(deep: Life) -> None:
    with WeightsLock(deep.model, shared=True):
        written = deep.trainer.checkpoint(7, deep.entry(7), deep.model)
    assert f"pid {os.getpid()}" in written.error and not deep.entry(7).exists()
    assert deep.checkpoint(7).fingerprint == deep.on_disk()


def test_a_checkpoint_that_is_there_is_not_overwritten(deep: Life) -> None:
    before = {path: path.read_bytes() for path in deep.checkpoints.rglob("*") if path.is_file()}
    for step in (4, 6):
        assert "is a checkpoint already" in deep.trainer.checkpoint(7, deep.entry(step), deep.model).error
    assert {path: path.read_bytes() for path in deep.checkpoints.rglob("*") if path.is_file()} == before
    assert deep.on_disk() == deep.fingerprints[6]


def test_what_dead_processes_left_is_removed(deep: Life) -> None:
    shutil.copytree(deep.entry(6), deep.checkpoints / "step-00000007.tmp-99999")
    (deep.entry(7) / "apollod").mkdir(parents=True)
    deep.checkpoint(7)
    assert len(os.listdir(deep.checkpoints)) == 4 and deep.restore(2).fingerprint == deep.fingerprints[2]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def damage_delta(life: Life) -> None:
    flip(life.entry(6) / "apollod/undo.delta", 5000)


def lose_delta(life: Life) -> None:
    (life.entry(6) / "apollod/undo.delta").unlink()


def damage_weights(life: Life) -> None:
    flip(life.model / "model.safetensors", -1)


def change_record(life: Life) -> None:
    record = life.entry(4) / "apollod/checkpoint.json"
    record.write_text(record.read_text().replace(life.fingerprints[4], "0123456789abcdef"))


def damage_state(life: Life) -> None:
    state = life.entry(4) / "apollod/optimizer.safetensors"
    data = bytearray(state.read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"
    state.write_bytes(data)


def lose_checkpoint(life: Life) -> None:
    shutil.rmtree(life.entry(4))


@pytest.mark.parametrize(
    "harm", [damage_delta, lose_delta, damage_weights, change_record, damage_state, lose_checkpoint]
)
def test_memory_is_as_it_was_after_every_restore_that_cannot_be(deep: Life, harm: Callable[[Life], None]) -> None:
    harm(deep)
    before = deep.memory.bytes.copy()
    refused = deep.refused(4)
    assert refused.what == "restore" and refused.reason and refused.hint
    assert np.array_equal(before, deep.memory.bytes)
    assert deep.steps(8, 8)


def test_a_checkpoint_of_another_model_or_rank_is_refused_with_both_values(deep: Life) -> None:
    deep.take(deep.trainer, fresh=False)
    deep.settings = msgspec.structs.replace(SETTINGS, rank=8)
    deep.take(deep.trainer, fresh=False)
    before = deep.memory.bytes.copy()
    refused = deep.refused(4)
    assert "rank = 16" in refused.reason and "says 8" in refused.reason
    deep.settings = SETTINGS
    deep.take(deep.trainer, fresh=False)
    message = msgspec.structs.replace(restore(deep.entry(4), deep.memory, True, deep.fingerprints[2], deep.checkpoints))
    refused = deep.trainer.ask(message, m.Refused)
    assert deep.fingerprints[2] in refused.reason and deep.fingerprints[4] in refused.reason
    assert np.array_equal(before, deep.memory.bytes)


def test_weights_that_are_no_numbers_never_reach_the_model_directory(deep: Life) -> None:
    deep.memory.span(MATRIX).view("<u2")[-1] = 0x7FC0
    written = deep.trainer.checkpoint(7, deep.entry(7), deep.model)
    assert written.damaged and MATRIX in written.error and deep.on_disk() == deep.fingerprints[6]
    assert deep.restore(6).fingerprint == deep.fingerprints[6]


def test_nothing_of_this_is_kept_in_a_shared_cache(shared: Trainer, smaller_model: Path, tmp_path: Path) -> None:
    where = tmp_path / "models--org--tiny/snapshots/abc"
    shutil.copytree(smaller_model, where)
    shared.attach(Memory.of(where), SETTINGS, m.Bound)
    shared.step(1, EXAMPLES[0])
    before = directory_fingerprint(where)
    written = shared.checkpoint(1, tmp_path / "checkpoints/1", where)
    assert "Hugging Face cache" in written.error and "cp -a" in written.error and directory_fingerprint(where) == before
