"""The configuration: one TOML file, checked once, frozen.

Precedence: `--set section.key=value` > `APOLLOD_SECTION__KEY` > a file `section.key` in `$CREDENTIALS_DIRECTORY` >
the TOML file > the default here. An unknown key is an error that names the nearest known one; a credential that names no section
is somebody else's.
"""

import difflib
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from apollod.core.events import Settings
from apollod.core.layers import parse_layers
from apollod.errors import ConfigError
from apollod.permission import denied
from apollod.wire.messages import Kernels, OptimizerSettings

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0.0, lt=1.0)]


LR_DIRECT = 1e-4


class StateSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where everything of ours lives."""

    dir: str = "/var/lib/apollod"
    """journal, checkpoints, quarantine, logs of the children"""


class ModelSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model."""

    path: str
    """a local Hugging Face directory with safetensors"""


class EngineSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535)] = 8000
    args: tuple[str, ...] = ()
    """more arguments of vLLM's API server, for example ["--max-model-len", "32768"]"""
    served_name: str = "apollo"
    api_key: str = ""
    """required from every HTTP client when set; better given as a credential `engine.api_key`"""
    threads: NotNegative = 0
    """CPU only: cores of the engine; 0 means half of them"""
    kv_cache_mib: Positive = 512
    """CPU only: memory of the KV cache"""
    start_timeout_s: Annotated[float, Meta(gt=0)] = 1800.0


class TrainerSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The optimizer and what it is fed."""

    optimizer: Literal["apollo", "adamw", "adafactor", "adamw8bit"] = "apollo"
    lr: Annotated[float, Meta(gt=0.0)] = 1e-5
    """of what comes from files and logs"""
    lr_direct: Annotated[float, Meta(ge=0.0)] = 0.0
    """of what is given over HTTP or `ctl submit`; 0: 1e-4, or `lr` where that is higher"""
    rank: Positive = 64
    """apollo: the smaller side of a matrix is projected to this; with rank = 1 and scale = "tensor" it is APOLLO-Mini"""
    scale: Literal["channel", "tensor"] = "channel"
    limiter: Annotated[float, Meta(ge=0.0)] = 1.01
    """apollo: largest growth of an update's norm from one step to the next; 0: no limit"""
    moments: Literal["float32", "bfloat16"] = "float32"
    """apollo and adamw: how they are kept; bfloat16 takes half the memory and is rounded stochastically"""
    betas: tuple[Share, Share] = (0.9, 0.999)
    weight_decay: Annotated[float, Meta(ge=0.0)] = 0.0
    warmup: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    """share of a window's first examples over which the learning rate rises"""
    schedule: Literal["constant", "cosine"] = "constant"
    """of the learning rate after the warm-up"""
    lr_floor: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    """cosine: share of the learning rate that it comes down to at the end of a window"""
    accumulate: Positive = 1
    """examples of one step, at most; more than 1 needs memory for a whole gradient, as much as the trained weights"""
    layers: str = ""
    """train these decoder layers only, such as "20-31" or "0-3,20-31"; empty: everything"""
    freeze: tuple[str, ...] = ()
    """patterns of Hugging Face names that are not trained, such as ["*.A_log", "lm_head.*"]"""
    loss_max: Annotated[float, Meta(ge=0.0)] = 0.0
    """a step with a higher loss writes nothing; 0: no such limit"""
    loss_spike: Annotated[float, Meta(ge=0.0)] = 0.0
    """nor does one whose loss is higher than this many times the mean of its window; 0: no such limit"""
    rounding: Literal["stochastic", "nearest", "master"] = "stochastic"
    """of bf16 weights. nearest learns next to nothing at lr 1e-5; master keeps a float32 copy: 4 bytes a parameter more"""
    max_tokens: Annotated[int, Meta(ge=8)] = 4096
    """a longer example loses the left of its prompt"""
    seed: NotNegative = 0
    gradient_checkpointing: bool = False
    publish: Literal["hogwild", "fenced"] = "hogwild"
    """hogwild: requests run while a step writes; fenced: they wait until it is written"""
    fence_max_s: Annotated[float, Meta(gt=0.0)] = 60.0
    """fenced: longest wait, after which requests go on whatever the trainer does"""
    cache: Literal["reset", "salt", "keep"] = "reset"
    """what becomes of prefixes cached with older weights: dropped, left to age out unseen, or used knowingly"""
    cache_every: Positive = 1
    """steps between two resets or salts; always at the end of a training window"""
    align_every: NotNegative = 100
    """steps between two comparisons of engine and trainer; 0: only when a trainer attaches"""
    align_max: Annotated[float, Meta(gt=0.0)] = 0.1
    """largest mean difference of log-probabilities; above it training halts"""
    kernels: Kernels = "auto"
    """apollo on a GPU: triton; eager, which is plain torch; auto: triton where it can run"""
    stall_s: Annotated[float, Meta(ge=0.0)] = 1800.0
    """a trainer that owes an answer and gives none for so long hangs: it is ended, and another one goes on; 0: never"""
    threads: NotNegative = 0
    """CPU only: cores of the trainer; 0 means what the engine leaves. Part of what makes a replay exact"""

    def __post_init__(self) -> None:
        if 0 < self.limiter < 1:
            raise ValueError(f"limiter = {self.limiter} is neither 0 (no limit) nor a growth of at least 1")
        if 0 < self.loss_spike <= 1:
            raise ValueError(f"loss_spike = {self.loss_spike} would refuse a usual loss; use more than 1, or 0 for no limit")
        parse_layers(self.layers)
        if self.moments != "float32" and self.optimizer not in ("apollo", "adamw"):
            raise ValueError(f'moments = "{self.moments}" is for apollo and adamw; {self.optimizer} has no choice of them')
        if self.kernels == "triton" and self.optimizer != "apollo":
            raise ValueError(f'kernels = "triton" is for apollo; {self.optimizer} has none')

    @property
    def direct_rate(self) -> float:
        """Nobody who raises `lr` wants what is told directly to be learned more weakly than a file."""
        return self.lr_direct or max(LR_DIRECT, self.lr)


class InboxSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The watched directory."""

    path: str = ""
    """default: `inbox` in the state directory"""
    max_line_bytes: Annotated[int, Meta(ge=1024)] = 1 << 20
    rescan_s: Annotated[float, Meta(gt=0.0)] = 5.0


class WatchSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directory of agent logs."""

    path: str
    format: str = "auto"


class CheckpointSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When weights and optimizer go to disk."""

    delay_s: Annotated[float, Meta(ge=0.0)] = 600.0
    """seconds after the last step"""
    keep_base: Literal["auto", "copy", "off"] = "auto"
    """the weights before the first step, in `base` of the state directory, for a replay from 0: reflink, else hard link, else
    copy; "copy" also where a link would do, against edits in place"""
    keep: Positive = 20
    """checkpoints that can be gone back to; the oldest goes first"""
    keep_bytes: NotNegative = 0
    """of disk for all of them together; 0: no limit"""
    keep_days: Annotated[float, Meta(ge=0.0)] = 0.0
    """older ones are removed; 0: no limit. The newest one always stays"""
    undo_bytes: NotNegative = 1 << 30
    """of memory for undoing the last steps without a checkpoint; a step takes about a sixth of the weights, and the optimizer's state"""
    hook: tuple[str, ...] = ()
    """command that is run after each checkpoint, such as ["/etc/apollod/offsite.sh"]; see contrib/hooks"""
    hook_timeout_s: Annotated[float, Meta(gt=0.0)] = 3600.0
    replay_max: Positive = 1000
    """write one anyway after this many steps: it bounds what a recovery has to run again"""


class LogSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The daemon's own log, on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    model: ModelSection
    state: StateSection = StateSection()
    engine: EngineSection = EngineSection()
    trainer: TrainerSection = TrainerSection()
    inbox: InboxSection = InboxSection()
    watch: tuple[WatchSection, ...] = ()
    checkpoint: CheckpointSection = CheckpointSection()
    log: LogSection = LogSection()

    @property
    def state_dir(self) -> Path:
        return Path(self.state.dir).expanduser().absolute()

    @property
    def runtime_dir(self) -> Path:
        """Sockets: $RUNTIME_DIRECTORY of the service manager, or `run` in the state directory."""
        given = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
        return Path(given) if given else self.state_dir / "run"

    @property
    def socket_path(self) -> Path:
        return self.runtime_dir / "apollod.sock"

    @property
    def journal_path(self) -> Path:
        return self.state_dir / "journal.db"

    @property
    def inbox_dir(self) -> Path:
        return Path(self.inbox.path).expanduser().absolute() if self.inbox.path else self.state_dir / "inbox"

    @property
    def url(self) -> str:
        return f"http://{self.engine.host}:{self.engine.port}"

    def settings(self) -> Settings:
        """What decisions depend on; recorded in the journal."""
        return Settings(
            model_path=str(Path(self.model.path).expanduser().absolute()),
            optimizer=self.trainer.optimizer, rank=self.trainer.rank, lr=self.trainer.lr, warmup=self.trainer.warmup,
            checkpoint_delay_s=self.checkpoint.delay_s, checkpoint_keep=self.checkpoint.keep,
            checkpoint_keep_bytes=self.checkpoint.keep_bytes, checkpoint_keep_days=self.checkpoint.keep_days,
            checkpoint_hook=bool(self.checkpoint.hook),
            keep_base=self.checkpoint.keep_base,
            replay_max=self.checkpoint.replay_max,
            scale=self.trainer.scale, betas=self.trainer.betas, weight_decay=self.trainer.weight_decay,
            rounding=self.trainer.rounding, seed=self.trainer.seed, max_tokens=self.trainer.max_tokens,
            checkpointing=self.trainer.gradient_checkpointing, moments=self.trainer.moments, limiter=self.trainer.limiter,
            layers=self.trainer.layers, freeze=self.trainer.freeze, schedule=self.trainer.schedule, lr_floor=self.trainer.lr_floor,
            lr_direct=self.trainer.direct_rate, accumulate=self.trainer.accumulate, loss_max=self.trainer.loss_max,
            loss_spike=self.trainer.loss_spike,
            publish=self.trainer.publish, fence_max_s=self.trainer.fence_max_s,
            cache=self.trainer.cache, cache_every=self.trainer.cache_every,
            align_every=self.trainer.align_every, align_max=self.trainer.align_max,
        )

    def optimizer(self) -> OptimizerSettings:
        """What the trainer is told."""
        t = self.trainer
        return OptimizerSettings(
            name=t.optimizer, rank=t.rank, scale=t.scale, betas=t.betas, weight_decay=t.weight_decay, rounding=t.rounding,
            seed=t.seed, max_tokens=t.max_tokens, checkpointing=t.gradient_checkpointing, moments=t.moments, limiter=t.limiter,
            layers=t.layers, freeze=t.freeze,
        )


def load_config(
    path: str | None, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> Config:
    """Read and check the configuration; raises ConfigError with the offending key and the nearest known one, NotPermitted for a file
    that may not be read."""
    tree = _file(path) if path is not None else {}
    _check_keys(tree, Config, "")
    _overlay(tree, _credentials(environ.get("CREDENTIALS_DIRECTORY", "")))
    _overlay(tree, _environment(environ))
    _overlay(tree, [_flag(text) for text in overrides])
    _check_finite(tree)
    if "model" not in tree:
        raise ConfigError("[model] path is not set", 'name a local Hugging Face directory: [model] path = "/models/..."')
    try:
        return msgspec.convert(tree, Config, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path or 'configuration'}: {error}", "`apollod config show` prints every key with its default") from error


class _Value(NamedTuple):
    """One value from outside of the file; `origin`: where it was given, in the user's words."""

    origin: str
    section: str
    key: str
    raw: str


def _file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(Path(path)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", "see `apollod init DIR` for an example") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start + 1})", "save it as UTF-8") from error
    except PermissionError as error:
        raise denied(path) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "make a configuration with `apollod init DIR`") from error


def _credentials(directory: str) -> list[_Value]:
    """Files named `section.key`. The service manager puts other credentials there, too: what names no section of ours is not ours."""
    if not directory or not Path(directory).is_dir():
        return []
    found = []
    for file in sorted(Path(directory).iterdir()):
        section, dot, key = file.name.partition(".")
        if dot and section in Config.__struct_fields__:
            found.append(_Value(f"the credential {file.name}", section, key, _text(file).strip()))
    return found


def _environment(environ: Mapping[str, str]) -> list[_Value]:
    found = []
    for name in sorted(environ):
        section, split, key = name.removeprefix("APOLLOD_").lower().partition("__")
        if name.startswith("APOLLOD_") and split:
            found.append(_Value(name, section, key, environ[name]))
    return found


def _flag(text: str) -> _Value:
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot:
        raise ConfigError(f"--set {text!r} is not section.key=value", "for example --set trainer.lr=1e-4")
    return _Value(f"--set {name.strip()}", section, key, value.strip())


def _overlay(tree: dict[str, Any], values: Sequence[_Value]) -> None:
    """Put values over those of a tree whose keys were checked."""
    for origin, section, key, raw in values:
        kind, listed = _table(_known(Config, section, "", origin))
        if listed:
            raise ConfigError(f"{origin}: there may be several [[{section}]], so one value cannot be set", "write them in the TOML file")
        try:
            value = raw if _known(kind, key, section, origin) is str else tomllib.loads(f"v = {raw}")["v"]
        except (tomllib.TOMLDecodeError, RecursionError):
            value = raw
        tree.setdefault(section, {})[key] = value


def _check_keys(tree: dict[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    """Tables are tables, and every key in them is known. Values are left to the conversion."""
    for key, value in tree.items():
        inner, listed = _table(_known(kind, key, where))
        if inner is None:
            continue
        tables = value if listed else [value]
        header = f"[[{key}]]" if listed else f"[{key}]"
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ConfigError(f"{key!r} is no {'list of tables' if listed else 'table'}", f"write {header}, and its keys below")
        for table in tables:
            _check_keys(table, inner, key)


def _check_finite(value: Any, where: str = "") -> None:
    """What is recorded and shown as JSON has to be a number there, too; and no bound is ever crossed by a NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} = {value}", "use a number, or 0 where that means no limit")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_finite(inner, f"{where} {key}" if where else f"[{key}]")
    elif isinstance(value, list):
        for inner in value:
            _check_finite(inner, where)


def _known(kind: type[msgspec.Struct], key: str, where: str, origin: str = "") -> Any:
    """The type of a key; raises ConfigError for one that is not there."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        place = f" in [{where}]" if where else ""
        said = f"{origin}: " if origin else ""
        raise ConfigError(f"{said}unknown key {key!r}{place}", f"did you mean {near[0]!r}? known: {', '.join(known)}")
    return known[key]


def _table(kind: Any) -> tuple[Any, bool]:
    """The section that a key of the file is, and whether there may be several of it; None for a plain value."""
    listed = get_origin(kind) is tuple
    inner = get_args(kind)[0] if listed else kind
    return (inner, listed) if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else (None, False)
