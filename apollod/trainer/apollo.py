"""APOLLO: AdamW's learning rates, one a channel, estimated from a low-rank projection of the gradient.

Written from the formulas of arXiv:2412.05270 (and of arXiv:2410.01623 for the limiter). For a weight W [m, n] of rank r,
with m >= n (rows are channels; otherwise the same with sides swapped) and gradient G:

    R  = G P                        P [n, r] of +-1/sqrt(r), rebuilt from (seed, name, step // gap)
    M  = b1 M + (1 - b1) R          V = b2 V + (1 - b2) R*R            Rt = M / (sqrt(V) + eps)
    s  = |Rt_c| / (|R_c| + 1e-8)    a channel ("channel"), or with Frobenius norms one for all ("tensor")
    U  = diag(s) G                  |U|^2 = sum_c s_c^2 |G_c|^2, so that U never has to exist
    L  = max(|U| / (prev + 1e-8) / gamma, 1)                           prev = |U| / L
    W  = round(W (1 - lr wd) - lr sqrt(1 - b2^t) / (1 - b1^t) sqrt(n / r) U / L)

sqrt(n / r) makes lr an AdamW lr: a projection to r of n dimensions shrinks s by sqrt(r / n). A parameter that is not 2-D, or
whose smaller side is below r, takes Adam: U = M / (sqrt(V) + eps) of the gradient itself, no sqrt(n / r), no limiter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from apollod.errors import ApolloError
from apollod.trainer.moments import adam_, apollo_
from apollod.trainer.projector import project, square_norms, stream_key
from apollod.trainer.rounding import Rounding, write_update_

Scale = Literal["channel", "tensor"]

_STATE_VERSION = 1


class OptimizerError(ApolloError, ValueError):
    """A parameter, an option or a call that the optimizer cannot work with."""


class StateRefused(OptimizerError):
    """Optimizer state of another model, rank, shape, dtype or version."""

    def __init__(self, what: str, saved: object, here: object) -> None:
        super().__init__(
            f"optimizer state does not fit: {what} is {saved} in the saved state and {here} here",
            "load the state that was saved with this model and rank, or start with a fresh optimizer",
        )


@dataclass(frozen=True)
class StepReport:
    """What one step did. Sums run in the order of names, so they do not depend on the order of the backward pass."""

    updated: int
    skipped_zero: int
    skipped_nonfinite: int
    update_norm: float
    """Euclidean norm, over all updated parameters, of the update before lr (bias correction, scale and limiter included)."""
    grad_norm: float
    """Euclidean norm of the gradients of all updated parameters."""
    skipped: list[str]
    """Names of parameters with a zero or non-finite gradient: neither weights nor state were touched."""


@dataclass
class _Tally:
    """Running account of one step, keyed by name."""

    step: int
    squares: dict[str, tuple[float, float]] = field(default_factory=dict)  # of update and gradient; updated parameters
    zero: list[str] = field(default_factory=list)
    nonfinite: list[str] = field(default_factory=list)
    fired: set[str] = field(default_factory=set)

    def report(self) -> StepReport:
        ordered = [self.squares[name] for name in sorted(self.squares)]
        update_norm, grad_norm = (math.sqrt(sum(square[i] for square in ordered)) for i in (0, 1))
        skipped = sorted(self.zero + self.nonfinite)
        return StepReport(len(ordered), len(self.zero), len(self.nonfinite), update_norm, grad_norm, skipped)


@dataclass(frozen=True)
class _Unit:
    """One parameter, known by its Hugging Face name, whatever memory holds it."""

    name: str
    group: dict[str, Any]
    summed: int | None  # the dimension inside a channel: 1 = rows are channels, 0 = columns are; None = Adam
    round_to: torch.dtype

    @property
    def fields(self) -> tuple[str, ...]:
        return ("m", "v", "t") if self.summed is None else ("m", "v", "t", "norm")


class HookHandle:
    """The hooks of `Apollo.attach`; `remove()` takes them off again."""

    def __init__(self, hooks: list[torch.utils.hooks.RemovableHandle]) -> None:
        self._hooks = hooks

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


class Apollo(torch.optim.Optimizer):
    """APOLLO with stochastically rounded bf16 weights, as a normal optimizer or inside the backward pass.

    params        (Hugging Face name, Parameter) pairs, or groups {"params": pairs, option: value}; names key the random
                  streams and the state, so order and storage do not matter. bf16 or float32, contiguous
    lr            learning rate of an AdamW
    rank          r; 1 with scale="tensor" is APOLLO-Mini
    scale         "channel" | "tensor"
    betas, eps    of the moments (float32). eps is added to sqrt(V) before bias correction
    weight_decay  decoupled; see `rounding.write_update_` for its granularity
    gap           steps for which a projection is kept. 1 would destroy momentum, because M would average unrelated sketches
    gamma         largest growth of an update's norm from step to step; math.inf switches the limiter off
    seed          of the run
    rounding      "stochastic" | "nearest", of bf16 weights; float32 weights are not rounded
    round_to      {name: torch.bfloat16} for float32 weights that must stay on the bf16 grid (status `cast`)

    State a parameter: m, v float32 [m, r] or [r, n] (Adam: the parameter's shape), t int64 [] (applied updates), norm
    float64 [] (limiter). Allocated here, so that a lack of memory shows at once.

    Raises OptimizerError for parameters and options that cannot work.
    """

    def __init__(
        self,
        params: Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]],
        lr: float = 1e-5,
        *,
        rank: int = 64,
        scale: Scale = "channel",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        gap: int = 200,
        gamma: float = 1.01,
        seed: int = 0,
        rounding: Rounding = "stochastic",
        round_to: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        self.last_report: StepReport | None = None
        self._seed = seed
        self._next_step = 1
        self._tally: _Tally | None = None
        self._round_to = dict(round_to or {})
        self._units: dict[Tensor, _Unit] = {}
        options: dict[str, Any] = {"lr": lr, "rank": rank, "scale": scale, "betas": betas, "eps": eps}
        options |= {"weight_decay": weight_decay, "gap": gap, "gamma": gamma, "rounding": rounding}
        super().__init__(params, options)
        if unknown := self._round_to.keys() - {unit.name for unit in self._units.values()}:
            raise OptimizerError(f"round_to names parameters that are not optimized: {sorted(unknown)}")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add {"params": (name, Parameter) pairs, option: value} and allocate its state."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        _check_options(group)
        if "param_names" not in group:
            raise OptimizerError("parameters have no names", "pass model.named_parameters(), not model.parameters()")
        taken = {unit.name for unit in self._units.values()}
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if name in taken:
                raise OptimizerError(f"two parameters are named {name!r}")
            taken.add(name)
            self._adopt(name, parameter, group)

    def _adopt(self, name: str, parameter: Tensor, group: dict[str, Any]) -> None:
        dtype, target = parameter.dtype, self._round_to.get(name, parameter.dtype)
        if dtype not in (torch.bfloat16, torch.float32):
            raise OptimizerError(f"{name} is {dtype}; weights must be bfloat16 or float32")
        if target != dtype and (dtype, target) != (torch.float32, torch.bfloat16):
            raise OptimizerError(f"{name} is {dtype} and cannot be rounded to {target}; only float32 to bfloat16")
        if not parameter.is_contiguous():
            raise OptimizerError(f"{name} is not contiguous (shape {tuple(parameter.shape)}, strides {parameter.stride()})")
        shape, summed = list(parameter.shape), None
        if parameter.dim() == 2 and min(shape) >= group["rank"]:
            summed = 1 if shape[0] >= shape[1] else 0
            shape[summed] = group["rank"]
        unit = self._units[parameter] = _Unit(name, group, summed, target)
        m = torch.zeros(shape, dtype=torch.float32, device=parameter.device)
        t = torch.zeros((), dtype=torch.int64, device=m.device)
        norm = torch.full((), math.inf, dtype=torch.float64, device=m.device)  # infinite: the first update is not limited
        self.state[parameter] = dict(zip(unit.fields, (m, torch.zeros_like(m), t, norm), strict=False))

    def set_step(self, step: int) -> None:
        """Give the next step this number (from 1). It keys the rounding noise and, divided by gap, the projection."""
        if step < 1:
            raise OptimizerError(f"steps are numbered from 1, not {step}")
        self._next_step = step

    def begin(self, step: int, lr: float | None = None) -> None:
        """Open a step; with `lr`, set that learning rate in every group. Forgets a step that an error left open."""
        self.set_step(step)
        if lr is not None:
            for group in self.param_groups:
                group["lr"] = lr
                _check_options(group)
        self._tally = _Tally(step)

    def attach(self) -> HookHandle:
        """Update every parameter inside the backward pass, as soon as its gradient is complete, and free that gradient.

        Between `begin` and `finish` run exactly one backward pass: a parameter that fires twice (gradient accumulation,
        reentrant checkpointing) would be updated between its uses, so the second firing raises OptimizerError.
        """

        def update_and_free(parameter: Tensor) -> None:
            assert parameter.grad is not None
            self._update(parameter, parameter.grad)
            parameter.grad = None

        register = torch.Tensor.register_post_accumulate_grad_hook
        return HookHandle([register(p, update_and_free) for p in self._units])  # type: ignore[no-untyped-call]

    def finish(self) -> StepReport:
        """Close the open step and return its report, which is also kept as `last_report`."""
        report = self._open().report()
        self._next_step = self._open().step + 1
        self._tally, self.last_report = None, report
        return report

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the closure's loss, or None without one."""
        self.begin(self._next_step)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for parameter in self._units:
            if parameter.grad is not None:
                self._update(parameter, parameter.grad)
        self.finish()
        return loss

    def _open(self) -> _Tally:
        if self._tally is None:
            raise OptimizerError("no step is open", "call begin(step, lr) before the backward pass")
        return self._tally

    def _update(self, parameter: Tensor, gradient: Tensor) -> None:
        """Update one parameter. Weights are written through `.data`: autograd counts versions a storage, not a view, and
        would take a write to one slice of a merged weight for a change to all of them."""
        unit, tally, state = self._units[parameter], self._open(), self.state[parameter]
        group, name = unit.group, unit.name
        if name in tally.fired:
            raise OptimizerError(f"{name} got a second gradient in step {tally.step}", "run one backward pass a step")
        tally.fired.add(name)
        if gradient.layout != torch.strided:
            raise OptimizerError(f"the gradient of {name} is sparse; only dense gradients are supported")
        gradient = gradient.detach().contiguous()
        beta1, beta2 = group["betas"]
        t = int(state["t"]) + 1
        factor = math.sqrt(1 - beta2**t) / (1 - beta1**t)
        if unit.summed is None:
            update = gradient.to(torch.float32, copy=True)
            norms = adam_(update, state, group)
            coef: Tensor | float = -group["lr"] * factor
        else:
            update = gradient
            factor *= math.sqrt(min(gradient.shape) / group["rank"])
            key = stream_key("projection", self._seed, name, tally.step // group["gap"])
            low_rank, squares = project(gradient, key, group["rank"]), square_norms(gradient, unit.summed)
            coef, norms = apollo_(low_rank, squares, -group["lr"] * factor, unit.summed, state, group)
        if norms.zero or norms.nonfinite:
            (tally.zero if norms.zero else tally.nonfinite).append(name)
            return
        write_update_(
            parameter.data,
            update,
            coef,
            decay=1 - group["lr"] * group["weight_decay"],
            key=stream_key("rounding", self._seed, name, tally.step),
            rounding=group["rounding"],
            round_to=unit.round_to,
        )
        state["t"].fill_(t)
        tally.squares[name] = ((norms.update * factor) ** 2, norms.grad_square)

    def state_tensors(self) -> dict[str, Tensor]:
        """{"<name>.m" | ".v" | ".t" | ".norm": tensor}, fit for safetensors. Live: the next step changes the tensors."""
        return {f"{unit.name}.{key}": self.state[p][key] for p, unit in self._units.items() for key in unit.fields}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], strict: bool = True) -> None:
        """Copy in what `state_tensors` gave. Nothing is written unless everything fits, and nothing is ever cast.

        Raises StateRefused where a shape or dtype differs or, if `strict`, where a tensor is missing or unknown.
        Not strict: unknown tensors are ignored, and a parameter without saved tensors keeps its state.
        """
        own = self.state_tensors()
        shared = own.keys() & tensors.keys()
        for name in sorted(shared):
            saved, here = tensors[name], own[name]
            if saved.shape != here.shape:
                raise StateRefused(f"the shape of {name}", tuple(saved.shape), tuple(here.shape))
            if saved.dtype != here.dtype:
                raise StateRefused(f"the dtype of {name}", saved.dtype, here.dtype)
        if strict and own.keys() != tensors.keys():
            missing, unknown = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
            differ = f"({len(missing)} missing, {len(unknown)} unknown, such as {(missing or unknown)[0]})"
            raise StateRefused(f"the set of tensors {differ}", f"{len(tensors)} tensors", f"{len(own)} tensors")
        for name in shared:
            own[name].copy_(tensors[name])

    def state_dict(self) -> dict[str, Any]:
        """State, options, seed and next step: tensors and plain values only, so `torch.load(weights_only=True)` reads it.

        Unlike torch's, it is keyed by name. Tensors are live, as torch's are.
        """
        return {
            "version": _STATE_VERSION,
            "seed": self._seed,
            "next_step": self._next_step,
            "state": self.state_tensors(),
            "param_groups": [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave, options and seed included. (torch's would cast the moments to the weights' dtype.)
        Raises StateRefused, with nothing changed, where version, groups, ranks, shapes or dtypes differ."""
        version, groups = state_dict.get("version"), state_dict.get("param_groups", [])
        if version != _STATE_VERSION:
            raise StateRefused("the version", version, _STATE_VERSION)
        if len(groups) != len(self.param_groups):
            raise StateRefused("the number of parameter groups", len(groups), len(self.param_groups))
        for saved, here in zip(groups, self.param_groups, strict=True):
            if saved["rank"] != here["rank"]:
                raise StateRefused("the rank", saved["rank"], here["rank"])
        self.load_state_tensors(state_dict["state"])
        for saved, here in zip(groups, self.param_groups, strict=True):
            here.update({key: value for key, value in saved.items() if key != "param_names"})
        self._seed, self._next_step = state_dict["seed"], state_dict["next_step"]

    def state_bytes(self) -> int:
        """Bytes of optimizer state, all parameters together."""
        return sum(tensor.nbytes for tensor in self.state_tensors().values())


def _check_options(group: Mapping[str, Any]) -> None:
    right = {
        "lr": 0 <= group["lr"] < math.inf,
        "rank": group["rank"] >= 1,
        "scale": group["scale"] in ("channel", "tensor"),
        "betas": all(0 <= beta < 1 for beta in group["betas"]),
        "eps": group["eps"] > 0,
        "weight_decay": group["weight_decay"] >= 0,
        "gap": group["gap"] >= 1,
        "gamma": group["gamma"] >= 1,
        "rounding": group["rounding"] in ("stochastic", "nearest"),
    }
    wrong = [f"{name} = {group[name]!r} is out of range" for name, ok in right.items() if not ok]
    if wrong:
        raise OptimizerError("; ".join(wrong))
