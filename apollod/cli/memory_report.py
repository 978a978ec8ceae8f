"""`apollod config check --memory`: memory of a model and a trainer beside it, before anything is loaded."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apollod.adapters.system import hardware
from apollod.model.memory_plan import GB, Device, MemoryPlan, UndoBudget, memory_plan, shortage, undo_budget, ways_out
from apollod.model.memory_table import copied_bytes
from apollod.model.shapes import ModelShapes
from apollod.store.model_files import read_shapes
from apollod.supervisor import memory_budget
from apollod.supervisor.config import Config

_UNKNOWN = Device(1 << 60, gpu=True)
"""A GPU of unknown size."""


@dataclass(frozen=True)
class _Report:
    """Figures of the report. `device`: None if of unknown size; `host_free`: bytes that a daemon here would leave."""

    config: Config
    model: ModelShapes
    plan: MemoryPlan
    device: Device | None
    host_free: int
    undo: UndoBudget
    advice: str

    @property
    def left(self) -> int | None:
        """Bytes left for the KV cache; None: the size of the device is unknown."""
        return None if self.device is None else self.device.bytes - self.plan.taken

    @property
    def fits(self) -> bool | None:
        return None if self.device is None else not self.plan.missing

    @property
    def copies(self) -> bool:
        """True if a checkpoint has room for its copy."""
        return self.host_free >= copied_bytes(self.plan.table.checkpoint, 0)


def check(config: Config, device_gb: float | None, as_json: bool) -> int:
    """Print the table for a GPU of `device_gb` (10^9 bytes), or for this machine; exit code 1 if it does not fit, else
    0."""
    report = _report(config, device_gb)
    print(json.dumps(_object(report)) if as_json else _text(report))
    return 1 if report.fits is False else 0


def _report(config: Config, device_gb: float | None) -> _Report:
    device = memory_budget.this_device() if device_gb is None else Device(int(device_gb * GB), gpu=True)
    model, counted = read_shapes(Path(config.model.path).expanduser()), device or _UNKNOWN
    asked = memory_budget.asked(config, counted)
    plan = memory_plan(model, counted, asked)
    free = hardware.host_free_bytes()
    if not counted.gpu:
        free -= plan.table.weights + plan.engine + plan.trainer + plan.kv
    undo = undo_budget(plan.table, config.checkpoint.undo_bytes, free, counted.gpu)
    free -= 0 if counted.gpu else plan.table.training
    advice = ways_out(model, counted, asked) if plan.missing else ""
    return _Report(config, model, plan, device, max(0, free), undo, advice)


def _object(report: _Report) -> dict[str, Any]:
    plan, device, model = report.plan, report.device, report.model
    table = plan.table
    return {
        "schema_version": 1, "model": report.config.model.path,
        "from": "headers" if model.from_files else "config.json",
        "parameters": table.parameters, "trained": table.trained, "max_tokens": report.config.trainer.max_tokens,
        "step_tokens": plan.step_tokens,
        "device": "gpu" if plan.device.gpu else "cpu", "weights_bytes": table.weights,
        "state_bytes": table.state_total, "state": dict(table.state),
        "gradient_bytes": table.gradients, "update_bytes": table.update, "activation_bytes": table.activations,
        "activations_bound": table.bound,
        "layer_bytes": table.layer, "loss_bytes": table.loss, "training_bytes": table.training,
        "gradient_checkpointing": plan.gradient_checkpointing,
        "process_bytes": plan.engine + plan.trainer, "slack_bytes": plan.slack, "kv_bytes_per_token": table.kv_token,
        "kv_bytes": None if device is None else plan.kv, "kv_least_bytes": plan.kv_least,
        "device_bytes": device.bytes if device else None, "kv_left_bytes": report.left,
        "fits": report.fits, "advice": report.advice, "host_checkpoint_bytes": table.checkpoint,
        "host_checkpoint_fits": report.copies, "host_free_bytes": report.host_free,
        "host_undo_bytes": report.undo.bytes, "undo_step_bytes": report.undo.step, "undo_steps": report.undo.steps,
    }  # fmt: skip


def _text(report: _Report) -> str:
    plan, config = report.plan, report.config
    source = "the headers of its files" if report.model.from_files else "config.json alone, taken for bf16"
    lines = [f"{config.model.path}, from {source}; GB = 10^9 bytes", ""]
    rows = [*_training_rows(config, plan), *_device_rows(report)]
    lines += [f"{what:<16}{count / GB:>10.3f} GB  {note}" for what, count, note in rows]
    lines += ["", *(f"{what:<16}{count / GB:>10.3f} GB  {note}" for what, count, note in _host_rows(report))]
    if report.fits is False:
        lines += ["", f"{shortage(plan)}; {report.advice}"]
    return "\n".join(lines)


_Row = tuple[str, int, str]


def _training_rows(config: Config, plan: MemoryPlan) -> list[_Row]:
    t, table = config.trainer, plan.table
    gradients = "largest at once" if t.accumulate == 1 else f"all of them, accumulate = {t.accumulate}"
    again = [("layer", table.layer, "computed again in the backward pass")]
    moment = max(table.moments, key=lambda name: table.moments[name])
    chosen = ", where layers are computed again" if plan.gradient_checkpointing else ""
    learned, held = table.step.learned.tokens, table.step.held.tokens
    anchors = f" and {held} of anchors" if held else ""
    most = " at most, a bound for this architecture," if table.bound else ""
    bound = f"steps have at most {plan.step_tokens} tokens with their anchors"
    return [
        ("weights", table.weights, f"one copy for engine and trainer, {table.parameters / GB:.3f} billion parameters"),
        *(("optimizer state", count, kind) for kind, count in sorted(table.state.items(), key=lambda item: -item[1])),
        ("gradients", table.gradients, gradients),
        ("update", table.update, "working memory of the optimizer, for the largest matrix"),
        (
            "activations",
            table.activations,
            f"kept{most} for the backward pass of {learned} tokens{anchors}{chosen}; {bound}",
        ),
        *(again if table.layer else []),
        ("loss", table.loss, "logits and what is made of them, every token learned"),
        ("training", table.training, f"all but the weights, at its highest moment: {moment}"),
    ]


def _device_rows(report: _Report) -> list[_Row]:
    plan, left = report.plan, report.left
    what = "CUDA, vLLM's largest batch and its graphs" if plan.device.gpu else "Python, torch and vLLM"
    rows = [("processes", plan.engine + plan.trainer, f"{what}, and a tenth of a step for what is not known exactly")]
    if plan.slack:
        rows.append(("slack", plan.slack, "what the driver, cuBLAS and gaps between allocations take"))
    if report.device is None or left is None:
        return rows
    tokens = f", {plan.kv // plan.table.kv_token:,} tokens" if plan.table.kv_token and plan.kv else ""
    given = "as configured" if plan.kv_given else "what is left"
    least = "" if plan.kv_given else f"; one request of full length takes {plan.kv_least / GB:.3f} GB"
    of = "GPU" if plan.device.gpu else "machine"
    return [
        *rows,
        ("KV cache", plan.kv, f"{given}{tokens}{least}"),
        ("left", left - plan.kv, f"of a {of} of {report.device.bytes / GB:g} GB"),
    ]


def _host_rows(report: _Report) -> list[_Row]:
    table, undo = report.plan.table, report.undo
    where = "of the host" if report.plan.device.gpu else "besides"
    free = f"{report.host_free / GB:.1f} GB are free on this host"
    copy = (
        f"{where}, while one is written, in memory: {free}"
        if report.copies
        else f"{where}, while one is written: {free}, which is too little, so steps wait for the disk meanwhile"
    )
    kept = undo.refused or f"{where}, at most: the last {undo.steps} steps or so, for `ctl rollback`"
    return [("checkpoint", table.checkpoint, copy), ("undo", undo.bytes, kept)]
