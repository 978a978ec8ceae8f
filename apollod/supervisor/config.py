"""The configuration: one TOML file, checked once, frozen.

Precedence: `--set section.key=value` > `APOLLOD_SECTION__KEY` > a file `section.key` in `$CREDENTIALS_DIRECTORY` >
the TOML file > the default here. An unknown key is an error that names the nearest known one; a credential that names
no section is somebody else's.
"""

import difflib
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from apollod.adapters.system.timetable import hours_of, zone_of
from apollod.core.intake.events import StripLevel
from apollod.core.settings import (
    CheckpointSettings,
    JudgeSettings,
    NotNegative,
    OptimizerSettings,
    Products,
    QueueSettings,
    Recompute,
    ReviewSettings,
    ScheduleSettings,
    Settings,
    TrainerSettings,
    narrowed,
)
from apollod.errors import ConfigError
from apollod.explain import reason
from apollod.model.layers import parse_layers
from apollod.permission import denied


def review_share(rule: str) -> float:
    """Share of a source's examples that wait for a person: of "auto" none, of "hold" all, of "sample:0.1" a tenth.
    Raises ValueError."""
    if rule in _SHARES:
        return _SHARES[rule]
    name, _, share = rule.partition(":")
    try:
        found = float(share) if name == "sample" else -1.0
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= 1.0:
        raise ValueError(f'review = "{rule}" is none of "auto", "hold", and "sample:0.1" with any share from 0 to 1')
    return found


_SHARES = {"auto": 0.0, "hold": 1.0}
HERE = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}
"""names of this machine, as a client or a server writes them"""


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
    kv_cache_mib: NotNegative = 0
    """memory of the KV cache; 0: on a GPU what weights and training leave, else 512"""
    start_timeout_s: Annotated[float, Meta(gt=0)] = 1800.0
    names: tuple[str, ...] = ()
    """what clients call the server besides its address and localhost, such as ["apollo.lan", "web.lan:3000"]; requests
    and web pages from elsewhere may change nothing"""


class TrainerSection(TrainerSettings, frozen=True, forbid_unknown_fields=True):
    """The optimizer and what it is fed. Most keys are declared in `core.settings`; these are for this machine
    alone."""

    gradient_checkpointing: Recompute = "auto"
    """layers are computed again in the backward pass instead of kept, which takes less memory, a forward pass more, and
    changes no bit; auto: where a step of `max_tokens` would not fit otherwise"""
    products: Products = "auto"
    """CPU only: what bf16 matrices are multiplied in; auto: float32 on a processor without instructions for bf16"""
    stall_s: Annotated[float, Meta(ge=0.0)] = 1800.0
    """a trainer that owes an answer and gives none for so long hangs: it is ended, and another one goes on; 0: never"""

    def __post_init__(self) -> None:
        if 0 < self.limiter < 1:
            raise ValueError(f"limiter = {self.limiter} is neither 0 (no limit) nor a growth of at least 1")
        if 0 < self.loss_spike <= 1:
            raise ValueError(
                f"loss_spike = {self.loss_spike} would refuse a usual loss; use more than 1, or 0 for no limit"
            )
        parse_layers(self.layers)
        if self.moments != "float32" and self.name not in ("apollo", "adamw"):
            raise ValueError(f'moments = "{self.moments}" is for apollo and adamw; {self.name} has no choice of them')
        if self.kernels == "triton" and self.name != "apollo":
            raise ValueError(f'kernels = "triton" is for apollo; {self.name} has none')


class InboxSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The watched directory."""

    path: str = ""
    """default: `inbox` in the state directory"""
    max_line_bytes: Annotated[int, Meta(ge=1024)] = 1 << 20
    rescan_s: Annotated[float, Meta(gt=0.0)] = 5.0
    near_duplicate: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.9
    """a text of 40 words or more that has so much in common with one that was accepted is not learned (share of its
    groups of three words, estimated); 0: only what is the same. For watched directories, too"""
    review: str = "auto"
    """what waits for `apollod ctl example approve`: "hold" all, "sample:0.1" a tenth, "auto" nothing"""

    def __post_init__(self) -> None:
        review_share(self.review)


class WatchSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directory of agent logs and databases, with all below it; or one database."""

    path: str
    format: str = "auto"
    """of its files, as `apollod ctl source test` names it; auto: by their content"""
    mode: Literal["auto", "tail", "poll"] = "auto"
    """tail: files that grow, told of by the system; poll: databases, looked at every `poll_s`; auto: both, as far as
    the path holds them"""
    models: tuple[str, ...] = ()
    """whose answers are learned, others are context; default: those of the model as it is served; "*": everybody's"""
    strip: StripLevel = "memory"
    """what is taken out of conversations before they are learned: memory (surfaced memories and reminders), system
    (also system prompts), all (also tools and what programs tell about themselves), none"""
    strip_patterns: tuple[str, ...] = ()
    """regular expressions: what they match is taken out, too"""
    sidechains: bool = False
    """learn also what agents did that another one started"""
    tier: Literal["direct", "bulk"] = "bulk"
    """with which rate and before what its examples are learned"""
    context_tokens: Annotated[int, Meta(ge=1)] = 4096
    """of conversation before what is learned, roughly, and at most `[trainer] max_tokens`: prompts further back are
    left out"""
    settle_s: Annotated[float, Meta(ge=1.0)] = 60.0
    """a conversation to which nobody added anything for so long is taken as far as it goes"""
    poll_s: Annotated[float, Meta(ge=0.1)] = 10.0
    """how often databases are looked at"""
    review: str = "auto"
    """as in [inbox]"""

    def __post_init__(self) -> None:
        review_share(self.review)
        for pattern in self.strip_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"strip_patterns: {pattern!r} is no regular expression: {error}") from error

    @property
    def directory(self) -> Path:
        return Path(self.path).expanduser().absolute()


class CaptureSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the engine keeps of its own answers: prompt and tokens, by response id, without credentials."""

    mode: Literal["off", "feedback", "all"] = "off"
    """feedback: a rating finds the exact tokens of its answer; all: so do logs that name the response"""
    max_bytes: Annotated[int, Meta(ge=1 << 16)] = 256 << 20
    """of disk; the oldest answers go first"""
    keep_s: Annotated[float, Meta(gt=0.0)] = 86400.0
    """older answers are forgotten"""


class ReviewSection(ReviewSettings, frozen=True, forbid_unknown_fields=True):
    """What waits for a person."""

    divergence_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.05
    """of the time, at most, in which the engine is asked for scores"""
    alternate: bool = False
    """beside a score: what the model answers without what was stripped"""


class QueueSection(QueueSettings, frozen=True, forbid_unknown_fields=True):
    """In which order examples are learned that come from files and logs, and for how long they wait."""


class JudgeSection(JudgeSettings, frozen=True, forbid_unknown_fields=True):
    """A model that judges examples before they are learned. Most keys are declared in `core.settings`."""

    base_url: str = ""
    """of an OpenAI-compatible endpoint, up to and including /v1; empty: our own engine"""
    api_key: str = ""
    """of that endpoint; better given as a credential `judge.api_key`"""
    timeout_s: Annotated[float, Meta(gt=0.0)] = 120.0
    """of one request"""
    max_tokens: Annotated[int, Meta(ge=64)] = 2048
    """of one answer; with its question it has to fit into the context of that endpoint"""
    priority: int | Literal["auto"] = "auto"
    """of its requests at vLLM, higher is later. auto: 10 at our own engine, which then serves by priority; not sent
    elsewhere"""
    cases: tuple[str, ...] = ()
    """files of cases of your own whose right verdict is known, besides those that come with apollod"""

    def __post_init__(self) -> None:
        if self.votes > 1 and self.temperature == 0.0:
            raise ValueError(f"votes = {self.votes} at temperature = 0 are {self.votes} times the same; use one vote")
        if self.base_url and not self.model:
            raise ValueError("base_url needs model, the name under which that endpoint serves it")
        if self.model and not self.base_url:
            raise ValueError("model needs base_url; without both the served model judges")
        if self.api_key and not self.base_url:
            raise ValueError("api_key needs base_url; our own engine is asked with [engine] api_key")
        if self.base_url:
            from apollod.adapters.llm.endpoint import Endpoint  # here for start-up time

            Endpoint(self.base_url, self.model, self.api_key)  # refuses what it cannot ask


class ScheduleSection(ScheduleSettings, frozen=True, forbid_unknown_fields=True):
    """When what is not urgent is learned."""

    def __post_init__(self) -> None:
        zone_of(self.zone)
        if self.nightly:
            hours_of(self.nightly)


class CheckpointSection(CheckpointSettings, frozen=True, forbid_unknown_fields=True):
    """When weights and optimizer go to disk. Most keys are declared in `core.settings`."""

    undo_bytes: NotNegative | Literal["auto"] = "auto"
    """of host memory for undoing the last steps without a checkpoint; a step takes about a sixth of the weights, and
    the optimizer's state. auto: for 6 steps, as far as half of the free memory holds them, at least 1 GiB"""
    hook: tuple[str, ...] = ()
    """command that is run after each checkpoint, such as ["/etc/apollod/offsite.sh"]; see contrib/hooks"""
    hook_timeout_s: Annotated[float, Meta(gt=0.0)] = 3600.0


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
    capture: CaptureSection = CaptureSection()
    review: ReviewSection = ReviewSection()
    queue: QueueSection = QueueSection()
    judge: JudgeSection = JudgeSection()
    schedule: ScheduleSection = ScheduleSection()
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
    def capture_path(self) -> Path:
        return self.state_dir / "capture.db"

    @property
    def inbox_dir(self) -> Path:
        return Path(self.inbox.path).expanduser().absolute() if self.inbox.path else self.state_dir / "inbox"

    @property
    def url(self) -> str:
        return f"http://{self.engine.host}:{self.engine.port}"

    @property
    def api_url(self) -> str:
        """Base URL of the OpenAI API of our own engine."""
        host = f"[{self.engine.host}]" if ":" in self.engine.host else self.engine.host
        return f"http://{host}:{self.engine.port}/v1"

    def is_own(self, base_url: str) -> bool:
        """Is this our own engine's, under whatever name of this machine? Empty: yes."""
        if not base_url:
            return True
        url, host = urlsplit(base_url), self.engine.host
        port = url.port or (443 if url.scheme == "https" else 80)
        return port == self.engine.port and (url.hostname == host or {url.hostname, host} <= HERE)

    def settings(self) -> Settings:
        """What decisions depend on; recorded in the journal."""
        return Settings(
            model_path=str(Path(self.model.path).expanduser().absolute()),
            trainer=narrowed(self.trainer, TrainerSettings),
            checkpoint=narrowed(self.checkpoint, CheckpointSettings),
            review=narrowed(self.review, ReviewSettings),
            queue=narrowed(self.queue, QueueSettings),
            judge=narrowed(self.judge, JudgeSettings),
            schedule=narrowed(self.schedule, ScheduleSettings),
            checkpoint_hook=bool(self.checkpoint.hook),
        )

    def optimizer(self) -> OptimizerSettings:
        """What the trainer is told."""
        return narrowed(self.trainer, OptimizerSettings)


def load_config(path: str | None, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> Config:
    """Read and check the configuration; raises ConfigError with the offending key and the nearest known one,
    NotPermitted for a file that may not be read."""
    tree = _file(path) if path is not None else {}
    _check_keys(tree, Config, "")
    _overlay(tree, _credentials(environ.get("CREDENTIALS_DIRECTORY", "")))
    _overlay(tree, _environment(environ))
    _overlay(tree, [_flag(text) for text in overrides])
    _check_finite(tree)
    _check_choices(tree)
    if "model" not in tree:
        raise ConfigError(
            "[model] path is not set", 'name a local Hugging Face directory: [model] path = "/models/..."'
        )
    try:
        return msgspec.convert(tree, Config, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{path or 'configuration'}: {error}", "`apollod config show` prints every key with its default"
        ) from error


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
        raise ConfigError(
            f"cannot read {path}: {reason(error)}", "make a configuration with `apollod init DIR`"
        ) from error


def _credentials(directory: str) -> list[_Value]:
    """Files named `section.key`. The service manager puts other credentials there, too: what names no section of
    ours is not ours."""
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
            raise ConfigError(
                f"{origin}: there may be several [[{section}]], so one value cannot be set",
                "write them in the TOML file",
            )
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
            raise ConfigError(
                f"{key!r} is no {'list of tables' if listed else 'table'}", f"write {header}, and its keys below"
            )
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


def _check_choices(tree: dict[str, Any]) -> None:
    """Where a key has a few values, another text is refused with the nearest one."""
    for section, value in tree.items():
        kind, listed = _table(_known(Config, section, ""))
        for table in value if listed else [value]:
            for key, text in table.items() if isinstance(table, dict) else ():
                choices = get_args(found) if get_origin(found := _known(kind, key, section)) is Literal else ()
                if choices and isinstance(text, str) and text not in choices:
                    near = difflib.get_close_matches(text, choices, n=1, cutoff=0.0)
                    place = f"[[{section}]] {key}" if listed else f"{section}.{key}"
                    raise ConfigError(
                        f"{place} = {text!r} is no value of it",
                        f"did you mean {near[0]!r}? one of: {', '.join(choices)}",
                    )


def _known(kind: type[msgspec.Struct], key: str, where: str, origin: str = "") -> Any:
    """The type of a key; raises ConfigError for one that is not there."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        place = f" in [{where}]" if where else ""
        said = f"{origin}: " if origin else ""
        raise ConfigError(f"{said}unknown key {key!r}{place}", f"did you mean {near[0]!r}? known: {', '.join(known)}")
    found = known[key]
    return get_args(found)[0] if get_origin(found) is Annotated else found


def _table(kind: Any) -> tuple[Any, bool]:
    """The section that a key of the file is, and whether there may be several of it; None for a plain value."""
    listed = get_origin(kind) is tuple
    inner = get_args(kind)[0] if listed else kind
    return (inner, listed) if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else (None, False)
