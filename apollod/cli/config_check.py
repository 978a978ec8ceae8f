"""`apollod config check`: finds, before a start, reasons that would keep a daemon from working."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from apollod.adapters.journal import journal_file, journal_reader
from apollod.adapters.journal.growth import Growth, growth
from apollod.adapters.system.hardware import products_dtype
from apollod.adapters.system.model_dir import check_model_dir
from apollod.cli import render
from apollod.core.rules.daemon import another_model, history_limit
from apollod.core.settings import ProductsDtype
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, ModelRefused, NotPermitted
from apollod.model.config_facts import context_length
from apollod.model.engine_memory import asked_length
from apollod.store.access import DAEMON, check_writable
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
        answer = {"schema_version": 1, "ok": not refused, "error": error, **paths, **disk, "products": products}
        print(json.dumps(answer | {"warnings": warnings, "growth": grown._asdict() if grown else None}))
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
    return "bf16" if has_gpu() else products_dtype(config.trainer.products)


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
