"""Which kernels update the weights: what is asked for, what can run, what is said about it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.fingerprints import check_blocks, check_one_number_is_read

from apollod.trainer import environment, learner
from apollod.trainer.bind import live_fingerprint
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.open_step import OptimizerError
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.wire.messages import OptimizerSettings

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    live_fingerprint._triton = None


def test_on_a_cpu_nothing_is_chosen_and_nothing_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        environment.chosen_kernels("auto", "apollo", CPU)
        == environment.chosen_kernels("eager", "adamw", CPU)
        == "eager"
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "said"), [("apollo", "Triton's kernels cannot run"), ("adamw", "adamw has no Triton kernels")]
)
def test_triton_where_it_cannot_run_is_refused(name: str, said: str) -> None:
    with pytest.raises(OptimizerError, match=said) as refused:
        environment.chosen_kernels("triton", name, CPU)
    assert '[trainer] kernels = "auto"' in refused.value.hint


@pytest.mark.parametrize(
    ("wanted", "name", "why_not", "chosen", "sums"),
    [
        ("auto", "apollo", "", "triton", True),
        ("triton", "apollo", "", "triton", True),
        ("auto", "adamw", "", "eager", True),  # its updates have no kernels, fingerprints do
        ("eager", "apollo", "", "eager", False),
        ("auto", "apollo", "no compiler", "eager", False),
    ],
)
def test_what_is_chosen_on_a_gpu(
    wanted: Any,
    name: str,
    why_not: str,
    chosen: str,
    sums: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(environment, "_why_not", lambda device: why_not)
    assert environment.chosen_kernels(wanted, name, GPU) == chosen
    assert live_fingerprint._triton is sums
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (1 if why_not else 0) and why_not in "".join(lines)


class Broken:
    """A learner's surroundings, with an optimizer whose kernels do not compile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        monkeypatch.setattr(environment, "_why_not", lambda device: "")
        monkeypatch.setattr(learner, "make_optimizer", self.make)
        self.attached: Any = SimpleNamespace(device=GPU, trainable=(), round_to={})

    def make(self, settings: Any, trainable: Any, round_to: Any, kernels: str) -> Any:
        self.made.append(kernels)
        return SimpleNamespace(attach=lambda: SimpleNamespace(remove=lambda: None), warm_up=self.fail)

    def fail(self) -> None:
        raise RuntimeError("ptxas\nended with 1")

    def learn(self, kernels: Any) -> learner.Learner:
        return learner.Learner(self.attached, OptimizerSettings(), None, 0, kernels)  # type: ignore[arg-type]


def test_kernels_that_do_not_compile_are_replaced_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Broken(monkeypatch)
    assert broken.learn("auto").kernels == "eager"
    assert broken.made == ["triton", "eager"] and live_fingerprint._triton is False
    assert "RuntimeError: ptxas ended with 1" in capsys.readouterr().err


def test_unless_nothing_else_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptimizerError, match="ptxas ended with 1"):
        Broken(monkeypatch).learn("triton")


def test_what_was_chosen_is_part_of_the_environment() -> None:
    assert environment.environment(CPU)["kernels"] == "eager" and "triton" not in environment.environment(CPU)
    pytest.importorskip("triton")
    import importlib.metadata

    found = environment.environment(CPU, "triton")
    assert (found["kernels"], found["triton"]) == ("triton", importlib.metadata.version("triton"))


def test_an_optimizer_is_made_with_them() -> None:
    weight = [("w", torch.nn.Parameter(torch.zeros(64, 64)))]
    with pytest.raises(OptimizerError, match="no kernels for cpu"):
        make_optimizer(OptimizerSettings(rank=16), weight, None, "triton")
    for name in ("apollo", "adamw", "adafactor"):
        make_optimizer(OptimizerSettings(name, rank=16), weight, None, "eager").warm_up()


def test_torchs_sums_are_those_of_the_fingerprint() -> None:
    check_blocks("cpu")


def test_one_number_is_read_of_a_device() -> None:
    check_one_number_is_read("cpu", triton=False)


def test_the_fingerprint_is_queued_before_a_report_waits_for_the_device() -> None:
    optimizer = Apollo([("w", torch.nn.Parameter(torch.zeros(64, 64)))], rank=16)
    order: list[str] = []
    optimizer.begin(1)
    step: Any = optimizer._open()
    report = step.report
    step.report = lambda: (order.append("report"), report())[1]
    assert optimizer.finish(lambda: order.append("queued")).updated == 0
    assert order == ["queued", "report"]
