"""`apollod config check`: finds, before a start, reasons that would keep a daemon from working, and with --memory what
it takes in memory."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apollod.adapters.journal import journal_file, journal_reader
from apollod.adapters.journal.journal_file import Growth, growth
from apollod.adapters.system import hardware
from apollod.adapters.system.model_dir import check_model_dir
from apollod.cli import render
from apollod.core.rules.daemon import another_model, history_limit
from apollod.core.settings import ProductsDtype
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, ModelRefused, NotPermitted
from apollod.model.config_facts import context_length
from apollod.model.engine_memory import asked_length
from apollod.model.memory_plan import GB, Device, MemoryPlan, UndoBudget, memory_plan, shortage, undo_budget, ways_out
from apollod.model.memory_table import copied_bytes
from apollod.model.shapes import ModelShapes
from apollod.store.access import DAEMON, check_writable
from apollod.store.model_files import read_shapes
from apollod.supervisor import memory_budget, sources
from apollod.supervisor.child_commands import has_gpu, kernels_refused
from apollod.supervisor.config import Config, exposures
from apollod.supervisor.dreaming.tested_answers import patterns_refused
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality import teller
from apollod.supervisor.quality.prober import probes_of

_BOUND_MODEL = """
    SELECT json_extract(body, '$.settings.model_path') FROM events WHERE kind = 'daemon.started'
    AND seq < (SELECT min(seq) FROM events WHERE kind = 'trainer.bound') ORDER BY seq DESC LIMIT 1"""
_CHECKPOINT_BYTES = """
    SELECT avg(bytes) FROM (SELECT json_extract(body, '$.bytes') AS bytes FROM events
    WHERE kind = 'checkpoint.committed' AND bytes > 0 ORDER BY seq DESC LIMIT 20)"""
CHECKPOINT_SHARE = 1 / 6
"""Size of one step of the history before any was measured, as a share of the weights."""


def check(loaded: Config, as_json: bool, retired: Sequence[str] = ()) -> int:
    """Print the answer; exit code 0 if a daemon could start with this configuration. `retired`: warnings of its
    keys."""
    refused = _refusal(loaded)
    if refused:
        print(f"apollod: {refused.line()}", file=sys.stderr)
    state, inbox = str(loaded.state_dir), str(loaded.inbox_dir)
    paths = {"model": loaded.model.path, "state": state, "inbox": inbox, "url": loaded.url}
    grown, warnings = _growth(loaded), [*retired, *exposures(loaded)]
    history, free, limit = (0, 0, 0) if refused else (_history_bytes(loaded), _free_bytes(loaded), _keep_bytes(loaded))
    if as_json:
        error = refused.line() if refused else ""
        disk = {"history_bytes": history, "free_bytes": free, "keep_bytes": limit}
        products = _products(loaded)
        answer = {"ok": not refused, "error": error, **paths, **disk, "products": products}
        render.print_object(answer | {"warnings": warnings, "growth": grown._asdict() if grown else None})
    elif not refused:
        for warning in warnings:
            print(f"warning: {warning}")
        if grown:
            print(f"the state directory grows: {render.growth_text(*grown)}")
        print(f"ok: model {loaded.model.path}, state {state}, inbox {inbox}, {loaded.url}")
        kept = f"at most {loaded.checkpoint.keep}" if history == limit else str(loaded.checkpoint.keep)
        least = f"; the oldest go first above {render.size(limit)}" if limit else ""
        takes = f"about {render.size(history)}, {render.size(free)} of disk are free"
        print(f"history: {kept} checkpoints take {takes}{least}")
        if _products(loaded) == "float32":
            print(f"products: {render.FLOAT32_PRODUCTS}")
    return 1 if refused else 0


def _growth(loaded: Config) -> Growth | None:
    """Growth of the state directory; None without a readable journal (the daemon reports an unreadable one)."""
    try:
        return growth(loaded.journal_path) if loaded.journal_path.exists() else None
    except (ApolloError, OSError):
        return None


def _refusal(config: Config) -> ApolloError | None:
    """The reason why the daemon could not work with the configuration; None: it could."""
    model = Path(config.model.path).expanduser()
    try:
        check_model_dir(model)
        check_writable(model)
        _check_length(config, model)
        _check_same_model(config)
        _check_alone(config, model)
        Judge(config)
        probes_of(config)
    except ApolloError as error:
        return error
    why_not = kernels_refused(config)
    if why_not:
        return ConfigError(why_not)
    found = teller.refused(config) or sources.refused(config) or patterns_refused(config)
    return found or memory_budget.refusal(config)


def _check_length(config: Config, model: Path) -> None:
    """Raise ModelRefused for a --max-model-len beyond the model's positions, as vLLM does minutes later."""
    asked = asked_length(config.engine.args)
    length = context_length(json.loads((model / "config.json").read_text(encoding="utf-8")))
    if asked is None or length is None or asked <= length or os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1":
        return
    raise ModelRefused(
        f"[engine] args ask for --max-model-len {asked}, the model has {length} positions",
        f"set --max-model-len to {length} or less",
    )


def _check_same_model(config: Config) -> None:
    """Raise ConfigError for a model other than the one that the journal's first trainer was bound to."""
    rows = journal_reader.query(config.journal_path, _BOUND_MODEL).rows if config.journal_path.exists() else []
    wanted = config.settings().model_path
    if rows and rows[0][0] != wanted:
        raise ConfigError(*another_model(rows[0][0], wanted))


def _check_alone(config: Config, model: Path) -> None:
    """Raise ModelRefused for a model directory that the daemon of another state directory serves."""
    from apollod.cli.control.ctl import status

    try:
        socket = (model / DAEMON).read_text(encoding="utf-8").strip()
        serving = status(socket)
    except (FileNotFoundError, DaemonUnreachable, NotPermitted):
        return  # nobody noted an address there, or nobody answers
    elsewhere = serving.engine.path and Path(serving.engine.path).resolve() != model.resolve()
    if not elsewhere and Path(serving.journal.path).resolve() != config.journal_path.resolve():
        raise ModelRefused(
            f"another apollod ({socket}) serves and trains {model}",
            "stop that one, or give this one a copy of the model",
        )


def _products(config: Config) -> ProductsDtype:
    """Type in which the trainer will multiply bf16 matrices."""
    return "bf16" if has_gpu() else hardware.products_dtype(config.trainer.products)


def _history_bytes(config: Config) -> int:
    """Size of the full history of checkpoints in bytes, by the mean of the last ones in the journal, else by the size
    of the weights."""
    each: float | None = None
    if config.journal_path.exists():
        each = journal_reader.query(config.journal_path, _CHECKPOINT_BYTES).rows[0][0]
    if each is None:
        files = Path(config.model.path).expanduser().glob("*.safetensors")
        each = CHECKPOINT_SHARE * sum(file.stat().st_size for file in files)
    taken, limit = int(config.checkpoint.keep * each), _keep_bytes(config)
    return min(taken, limit) if limit else taken


def _keep_bytes(config: Config) -> int:
    """Limit of the history in bytes, `auto` worked out; 0: no limit."""
    limit = config.checkpoint.keep_bytes
    if limit != "auto":
        return limit
    held = sum(file.stat().st_size for file in config.state_dir.glob("checkpoints/step-*/**/*") if file.is_file())
    return history_limit(_free_bytes(config), held)


def _free_bytes(config: Config) -> int:
    """Free bytes on the disk of the state directory, which may not be there yet."""
    place = next(place for place in (config.state_dir, *config.state_dir.parents) if place.exists())
    return journal_file.free_bytes(place / "journal.db")


# --- --memory: what a model and a trainer beside it take, before anything is loaded ---------------------------------

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


def check_memory(config: Config, device_gb: float | None, as_json: bool) -> int:
    """Print the table for a GPU of `device_gb` (10^9 bytes), or for this machine; exit code 1 if it does not fit, else
    0."""
    report = _report(config, device_gb)
    if as_json:
        render.print_object(_memory_object(report))
    else:
        print(_memory_text(report))
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


def _memory_object(report: _Report) -> dict[str, Any]:
    plan, device, model = report.plan, report.device, report.model
    table = plan.table
    return {
        "model": report.config.model.path,
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


def _memory_text(report: _Report) -> str:
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
