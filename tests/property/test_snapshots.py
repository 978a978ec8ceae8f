"""A snapshot is worth nothing unless folding on from it gives what folding everything gives."""

import re
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_core_properties import ACTIONS, play
from support.effort import draws

from apollod.core.facts.review import Held
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.wire import state_snapshot
from apollod.wire.state_snapshot import dump_state, fold_code, load_state


@draws(50, 100)
@given(ACTIONS, st.floats(0, 1))
def test_a_snapshot_and_the_tail_are_a_full_replay(actions, where):
    journal = play(actions).journal
    whole, part = State(), State()
    for recorded in journal:
        fold(whole, recorded)
    cut = int(where * len(journal))
    for recorded in journal[:cut]:
        fold(part, recorded)
    resumed = load_state(dump_state(part))
    assert resumed == part
    for recorded in journal[cut:]:
        fold(resumed, recorded)
    assert resumed == whole and dump_state(resumed) == dump_state(whole)
    # not equal objects but the same ones: a digest given to one has to be seen in the other
    for queue in resumed.intake.queues:
        tail = list(queue.waiting)[len(queue.waiting) - len(queue.untokenised) :]
        assert all(a is b for a, b in zip(tail, queue.untokenised, strict=True))


def test_a_change_of_the_fold_is_another_code(tmp_path, monkeypatch):
    root = Path(state_snapshot.__file__).parents[1]
    for package in ("core", "wire"):
        shutil.copytree(root / package, tmp_path / package)
    monkeypatch.setattr(state_snapshot, "files", lambda package: tmp_path / package.rpartition(".")[2])
    compute = state_snapshot.fold_code.__wrapped__
    code = compute()
    assert code == fold_code()
    sources = [
        "core/state.py",
        "core/fold.py",
        "core/facts/training.py",
        "core/kernel/event.py",
        "core/rules/intake/fold.py",
    ]
    for module in [*sources, "wire/event_codec.py"]:
        with (tmp_path / module).open("a") as file:
            file.write("#")
        assert compute() != code
        code = compute()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"seq": "x"}', b'{"intake": {"bulk": {"waiting": [{"no": 1}]}}}'])
def test_what_is_no_state_is_refused(data):
    with pytest.raises(msgspec.MsgspecError):
        load_state(data)


def test_a_queue_keeps_its_type():
    assert isinstance(load_state(dump_state(State())).intake.bulk.waiting, deque)


def test_all_code_that_makes_a_state_of_rows_is_in_the_code_of_a_snapshot(tmp_path, monkeypatch):
    """As Python loads it, so that a module the fold comes to use cannot be forgotten: its old snapshots would be
    read on."""
    root = Path(state_snapshot.__file__).parents[1]
    script = "import sys, apollod.core.fold, apollod.wire.event_codec, apollod.wire.state_snapshot; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    modules = [name.split(".")[1:] for name in loaded if re.match(r"apollod\.(core|wire)\.", name)]
    for package in ("core", "wire"):
        shutil.copytree(root / package, tmp_path / package)
    monkeypatch.setattr(state_snapshot, "files", lambda package: tmp_path / package.rpartition(".")[2])
    compute = state_snapshot.fold_code.__wrapped__
    code = compute()
    assert ["core", "fold"] in modules and ["wire", "state_snapshot"] in modules
    for parts in modules:
        module = tmp_path.joinpath(*parts)
        with (module / "__init__.py" if module.is_dir() else module.with_suffix(".py")).open("a") as file:
            file.write("#")
        assert compute() != code, ".".join(parts)
        code = compute()
    monkeypatch.setattr(msgspec, "__version__", "0.0.1")
    assert compute() != code, "another codec"


def test_what_waits_for_a_decision_or_a_score_is_in_the_same_order_after_a_start():
    """What is longest there is given up first, and asked about first."""
    state = State()
    state.review.held = {name: Held("bulk", "why") for name in ("c", "a", "b")}
    state.scoring.candidates = dict.fromkeys(("c", "a", "b"))
    again = load_state(dump_state(state))
    assert list(again.review.held) == list(again.scoring.candidates) == ["c", "a", "b"]
