"""Steps kept in memory and taken back: weights, optimizer state and all that follows are as if they had never been."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from support.device_waits import DeviceWaits
from support.effort import LONG
from support.gradients import Parameters, give_gradients, model
from support.optimizers import KINDS, WIDE, every_kind

from apollod.trainer.bind import live_fingerprint
from apollod.trainer.optim import open_step, projector
from apollod.trainer.optim.named_optimizer import NamedOptimizer
from apollod.trainer.optim.open_step import ParameterStep
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.trainer.optim.row_gradient import SparseRows
from apollod.trainer.undo import undo_codec, undo_ring, way_back
from apollod.trainer.undo.undo_ring import ParameterUndo, UndoRing
from apollod.wire.messages import OptimizerSettings

PLENTY = 1 << 30


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parameters here are small, and shall be packed and written in several blocks all the same."""
    monkeypatch.setattr(projector, "BLOCK_ELEMENTS", 1024)
    monkeypatch.setattr(undo_codec, "PACKED_MIN", 64)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Run:
    """Parameters, their optimizer and its ring; what everything was after every step."""

    def __init__(
        self, kind: str = "apollo", budget: int = PLENTY, dtype: torch.dtype = torch.bfloat16, **options
    ) -> None:
        self.lr = options.pop("lr", 1e-4)
        self.parameters: Parameters = model(dtype, shapes=WIDE)
        round_to = {}
        if dtype == torch.float32 and options.pop("cast", False):
            round_to = dict.fromkeys(WIDE, torch.bfloat16)
            for parameter in self.parameters.values():
                parameter.data.copy_(parameter.data.bfloat16())
        settings = OptimizerSettings(kind.partition("-")[0], weight_decay=0.1, **(KINDS[kind] | options))
        self.optimizer: NamedOptimizer = make_optimizer(settings, list(self.parameters.items()), round_to)
        self.ring = UndoRing(budget)
        self.optimizer.undo = self.ring
        self.ring.restart(self.mark())

    def learn(self, step: int, without: tuple[str, ...] = ()) -> str:
        give_gradients(self.parameters, step, shapes=WIDE)
        for name in without:
            self.parameters[name].grad.zero_()
        self.optimizer.begin(step, self.lr)
        for parameter in self.parameters.values():
            self.optimizer._update(parameter, parameter.grad)
        self.optimizer.finish()
        mark = self.mark()
        self.ring.end(mark)
        return mark

    def mark(self) -> str:
        sums = ((n, live_fingerprint.tensor_fingerprint(p)) for n, p in self.parameters.items())
        return live_fingerprint.format(live_fingerprint.model_fingerprint(sums))

    def everything(self) -> dict[str, bytes]:
        tensors = {**self.parameters, **self.optimizer.state_tensors()}
        return {name: t.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for name, t in tensors.items()}


def differing(left: dict[str, bytes], right: dict[str, bytes]) -> list[str]:
    assert left.keys() == right.keys()
    return [name for name in left if left[name] != right[name]]


def wander(run: Run, moves: int, seed: int) -> list[int]:
    """Learn and take back at random, compared each time with what was there; the steps that are left in the end."""
    chance = random.Random(seed)
    states, marks, numbers = [run.everything()], [run.mark()], [0]
    number = 0
    for _ in range(moves):
        if len(numbers) == 1 or chance.random() < 0.6:
            number += 1
            marks.append(run.learn(number))
            states.append(run.everything())
            numbers.append(number)
            continue
        back = chance.randint(1, min(len(numbers) - 1, 6))
        count = run.ring.leads_to(numbers[-1 - back], marks[-1 - back])
        assert count == back
        run.ring.undo(count)
        del states[-back:], marks[-back:], numbers[-back:]
        assert differing(run.everything(), states[-1]) == []
        assert run.mark() == marks[-1]
    return numbers[1:]


@every_kind
@pytest.mark.parametrize("rounding", ["stochastic", "master"])
def test_back_to_every_state_and_on_with_the_same_bits(kind: str, rounding: str) -> None:
    run, straight = Run(kind, rounding=rounding), Run(kind, budget=0, rounding=rounding)
    steps = wander(run, 40 if LONG else 25, seed=1)
    for step in [*steps, 1001, 1002]:
        straight.learn(step)
    for step in (1001, 1002):
        run.learn(step)
    assert differing(run.everything(), straight.everything()) == []
    assert len(straight.ring) == 0


OTHERS = [{"dtype": torch.float32}, {"dtype": torch.float32, "cast": True}, {"lr": 0.1}, {"rounding": "nearest"}]


@pytest.mark.parametrize("options", OTHERS)
@pytest.mark.parametrize("kernels", [True, False])
def test_other_weights_and_rates(options: dict, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32, `cast`, steps that change everything, steps that change nothing; with torch operations alone."""
    if not kernels:
        monkeypatch.setattr(undo_codec, "kernels", lambda: None)
    wander(Run(**options), 25, seed=2)


def test_packing_that_is_finished_late_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parameter's when the next one is updated, the last one's at the end of the step."""
    made: list[way_back.TorchPacked] = []

    def late(old: torch.Tensor, new: torch.Tensor) -> way_back.Packed:
        made.append(way_back.TorchPacked(old.clone(), new, deferred=True))
        return made[-1]

    monkeypatch.setattr(undo_ring, "packed", late)
    run = Run("apollo")
    wander(run, 25, seed=4)
    run.ring.restart(run.mark())
    del made[:]
    give_gradients(run.parameters, 99, shapes=WIDE)
    run.optimizer.begin(99, 1e-4)
    for parameter in run.parameters.values():
        earlier = len(made)
        run.optimizer._update(parameter, parameter.grad)
        assert all(back.settled for back in made[:earlier])
        assert not any(back.settled for back in made[earlier:])
    run.optimizer.finish()
    run.ring.end(run.mark())
    assert all(back.settled for back in made)
    assert run.ring._unsettled == [] == run.ring._settled  # nothing of a step stays on the device
    assert run.ring.nbytes > sum(back.nbytes for back in made) > 0


def test_no_more_than_two_writes_wait_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that is written in blocks: what each was before is fetched while later ones are written."""
    monkeypatch.setattr(undo_ring, "WRITE_BYTES", 4096)
    monkeypatch.setattr(undo_ring, "packed", lambda old, new: way_back.TorchPacked(old.clone(), new, deferred=True))
    weight = torch.randn(40, 512, generator=torch.Generator().manual_seed(0)).bfloat16()
    before, undo = weight.clone(), ParameterUndo([], 0, PLENTY)
    for first in range(0, 40, 4):
        with undo.writing(weight[first : first + 4]):
            weight[first : first + 4] += 1
        assert 0 < sum(held.held_bytes for held in undo.unsettled) <= 2 * 4096
    assert len(undo.unsettled) == 2 and undo.nbytes >= 8 * 512
    for record in reversed(undo.records):
        record.undo()
    assert torch.equal(weight, before)


def test_what_cannot_fit_is_not_copied_on_the_device() -> None:
    """The embedding of a model of 27 B, on a device that only knows sizes: its state takes 127 MB, the way back from a
    write 318 MB at least, two bits an element, which is known before 2.54 GB are copied to make them."""
    weight = torch.empty(248_320, 5120, dtype=torch.bfloat16, device="meta")
    moments = {name: torch.empty(248_320, 64, device="meta") for name in "mv"}
    state = {**moments, "t": torch.empty((), dtype=torch.int64, device="meta")}
    taken = sum(tensor.nbytes for tensor in state.values())
    for budget, copied, needed in ((256 << 20, 3, taken + weight.numel() // 4), (100 << 20, 0, taken)):
        ring = UndoRing(budget)
        ring.begin(1)
        with DeviceWaits() as seen:
            undo = ring.parameter(state)
        assert seen.launches == copied
        with DeviceWaits() as seen, undo.writing(weight):
            pass
        assert seen.launches == 0 and not seen.largest
        assert undo.failed == f"one step alone takes {needed} bytes or more, undo_bytes = {budget} are allowed"


def test_a_large_weight_on_a_device_is_written_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no copy of it is larger than one of them."""
    most = 1 << 18
    monkeypatch.setattr(open_step, "WRITE_BYTES", most)
    weight = torch.empty(4000, 512, dtype=torch.bfloat16, device="meta")
    undo = ParameterUndo([], 0, PLENTY)
    step = ParameterStep(
        "w", {"lr": 1e-3, "weight_decay": 0.0, "rounding": "nearest"}, weight, torch.bfloat16, {}, 0, 1, 1, undo
    )
    sizes: list[int] = []

    def before(number: int, target: torch.Tensor) -> torch.Tensor:
        sizes.append(target.nbytes)
        return target

    undo._before = before  # type: ignore[method-assign]
    step.write(torch.empty_like(weight), torch.empty(4000, 1, device="meta"))
    assert max(sizes) <= most < 2 * sizes[0]


def test_a_parameter_without_gradient_is_left_alone() -> None:
    run = Run()
    before, mark = run.everything(), run.mark()
    run.learn(1, without=("up.weight", "norm.weight"))
    run.ring.undo(run.ring.leads_to(0, mark))
    assert differing(run.everything(), before) == []


@pytest.mark.parametrize("master", [False, True])
@pytest.mark.parametrize("sparse", [True, False])
def test_rows_take_only_what_they_touch(master: bool, sparse: bool) -> None:
    """An embedding of 4000 rows of which a step uses 9, or all."""
    shape, rows = torch.Size((4000, 32)), torch.tensor([3, 4, 5, 900, 901, 2000, 2500, 3998, 3999])
    weight = torch.nn.Parameter((torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 0.02).bfloat16())
    rounding = "master" if master else "stochastic"
    optimizer = make_optimizer(OptimizerSettings("apollo", rank=8, rounding=rounding), [("embed", weight)])
    ring = UndoRing(PLENTY)
    optimizer.undo = ring
    ring.restart("0")
    states, sizes = [], []
    for step in range(1, 5):
        states.append({name: t.clone() for name, t in {**optimizer.state_tensors(), "weight": weight.data}.items()})
        values = torch.randn(len(rows), 32, generator=torch.Generator().manual_seed(step)).bfloat16()
        gradient = SparseRows(shape, rows, values)
        optimizer.begin(step, 1e-5)
        optimizer._update(weight, gradient if sparse else gradient.dense())
        optimizer.finish()
        before = ring.nbytes
        ring.end(str(step))
        sizes.append(before - sum(sizes))
    moments = 2 * 4000 * 8 * 4
    if sparse:
        assert sizes[-1] < moments + 9 * (8 + 2 * 32 + 4 * 32) + 200
    for step in (3, 2, 1, 0):
        ring.undo(1)
        now = {**optimizer.state_tensors(), "weight": weight.data}
        assert [name for name, t in states[step].items() if not torch.equal(t, now[name])] == []


# --- what the ring knows ------------------------------------------------------------------------------------------


def test_the_oldest_steps_make_room() -> None:
    run = Run()
    marks = [run.mark()] + [run.learn(step) for step in range(1, 4)]
    a_step = max(step.nbytes for step in run.ring._steps)  # the first ones are larger or smaller: moments began at zero
    run = Run(budget=int(3.5 * a_step) + sum(s.nbytes for s in run.ring._scratch))
    marks = [run.mark()] + [run.learn(step) for step in range(1, 11)]
    assert len(run.ring) == 3
    assert run.ring.nbytes <= run.ring._budget
    assert run.ring.nbytes == sum(step.nbytes for step in run.ring._steps) + sum(s.nbytes for s in run.ring._scratch)
    assert run.ring.leads_to(6, marks[6]) is None
    assert run.ring.leads_to(7, marks[7]) == 3
    run.ring.undo(3)
    assert run.mark() == marks[7]
    assert run.ring.leads_to(6, marks[6]) is None
    assert run.ring.nbytes == sum(s.nbytes for s in run.ring._scratch)


def test_a_step_that_does_not_fit_is_said_once_and_costs_nothing_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(budget=1000)
    plain = Run(budget=0)
    marks = [run.learn(step) for step in range(1, 4)]
    assert marks == [plain.learn(step) for step in range(1, 4)]
    said = [line for line in capsys.readouterr().err.splitlines() if "undo_bytes = 1000" in line]
    assert len(said) == 1 and said[0].startswith("apollod trainer: ")
    assert run.ring.nbytes == 0 and not run.ring.recording
    assert run.ring.leads_to(3, marks[2]) is None
    run.ring.parameter = None  # type: ignore[assignment,method-assign]  # nobody asks it for room any more
    assert run.learn(4) == plain.learn(4)


def test_no_memory_for_keeping_does_not_harm_the_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, plain = Run(), Run()
    run.learn(1)
    plain.learn(1)

    def fail(*_tensors: torch.Tensor) -> None:
        raise RuntimeError("DefaultCPUAllocator: not enough memory")

    monkeypatch.setattr(undo_ring, "packed", fail)
    run.learn(2)
    monkeypatch.undo()
    plain.learn(2)
    assert differing(run.everything(), plain.everything()) == []
    assert "not enough memory" in capsys.readouterr().err
    assert len(run.ring) == 0


def test_a_step_that_wrote_nothing_does_not_break_the_chain() -> None:
    run = Run()
    start, first = run.mark(), run.learn(1)
    run.ring.end(run.mark())  # step 2: its loss was too high, so there was no `begin`
    third = run.learn(3)
    assert run.ring.leads_to(3, third) == 0
    assert run.ring.leads_to(2, first) == run.ring.leads_to(1, first) == 1
    assert run.ring.leads_to(0, start) == 2
    run.ring.undo(1)
    assert run.ring.leads_to(2, first) == 0
    assert run.mark() == first


def test_steps_that_left_the_weights_as_they_were_are_told_apart() -> None:
    """Of a rate of zero: only the optimizer's state differs."""
    run = Run(lr=0.0)
    states, mark = [run.everything()], run.mark()
    for step in (1, 2, 3):
        assert run.learn(step) == mark
        states.append(run.everything())
    assert [run.ring.leads_to(step, mark) for step in (0, 1, 2, 3)] == [3, 2, 1, 0]
    run.ring.undo(2)
    assert differing(run.everything(), states[1]) == []
    run.ring._steps.popleft()
    assert run.ring.leads_to(0, mark) is None  # the same weights, but not the same state


def test_nothing_leads_anywhere_after_a_restart() -> None:
    run = Run()
    marks = [run.mark()] + [run.learn(step) for step in (1, 2)]
    run.ring.restart(marks[2])
    assert len(run.ring) == 0
    assert [run.ring.leads_to(step, mark) for step, mark in enumerate(marks)] == [None, None, None]
    run.learn(3)
    assert run.ring.leads_to(2, marks[2]) == 1
    run.ring.clear()
    run.learn(4)
    assert run.ring.leads_to(3, undo_ring.UNKNOWN) is None  # nobody knows what was there before


def test_a_step_left_half_done_empties_the_ring() -> None:
    run = Run()
    marks = [run.mark(), run.learn(1)]
    run.optimizer.begin(2, 1e-4)
    give_gradients(run.parameters, 2, shapes=WIDE)
    run.optimizer._update(run.parameters["up.weight"], run.parameters["up.weight"].grad)
    assert run.ring.leads_to(1, marks[1]) is None  # and never finished
    run.learn(3)
    assert len(run.ring) == 1
    assert run.ring.leads_to(0, marks[0]) is None


def test_another_fingerprint_of_the_same_step_is_refused() -> None:
    run = Run()
    run.learn(1)
    run.learn(2)
    assert run.ring.leads_to(1, "0123456789abcdef") is None
