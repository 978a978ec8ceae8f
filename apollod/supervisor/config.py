"""The configuration: one TOML file, checked once, frozen.

Precedence: `--set section.key=value` > `APOLLOD_SECTION__KEY` > a file `section.key` in `$CREDENTIALS_DIRECTORY` > the
TOML file > the default here. `endpoint.NAME.key` stands for a key of the [[endpoint]] of that name, and likewise
`environment.NAME.key`. An unknown key is
an error that names the nearest known one; a credential that names no section is ignored; a retired key is accepted with
a warning.
"""

import math
import os
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from apollod.adapters.system.web_address import is_loopback
from apollod.core.settings import EnvironmentSettings, OptimizerSettings, Settings, narrowed
from apollod.errors import ConfigError, nearest
from apollod.explain import reason
from apollod.permission import denied
from apollod.supervisor import sections

HERE = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}
"""names of this machine, as used by clients and servers"""


NAMED = ("endpoint", "environment")
"""lists of tables whose tables have a name"""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration."""

    model: sections.ModelSection
    state: sections.StateSection = sections.StateSection()
    engine: sections.EngineSection = sections.EngineSection()
    weights: sections.WeightsSection = sections.WeightsSection()
    trainer: sections.TrainerSection = sections.TrainerSection()
    inbox: sections.InboxSection = sections.InboxSection()
    watch: tuple[sections.WatchSection, ...] = ()
    redaction: sections.RedactionSection = sections.RedactionSection()
    endpoint: tuple[sections.EndpointSection, ...] = ()
    capture: sections.CaptureSection = sections.CaptureSection()
    preferences: sections.PreferencesSection = sections.PreferencesSection()
    control: sections.ControlSection = sections.ControlSection()
    review: sections.ReviewSection = sections.ReviewSection()
    queue: sections.QueueSection = sections.QueueSection()
    judge: sections.JudgeSection = sections.JudgeSection()
    schedule: sections.ScheduleSection = sections.ScheduleSection()
    dream: sections.DreamSection = sections.DreamSection()
    quality: sections.QualitySection = sections.QualitySection()
    signals: sections.SignalsSection = sections.SignalsSection()
    lessons: sections.LessonSection = sections.LessonSection()
    environment: tuple[sections.EnvironmentSection, ...] = ()
    checkpoint: sections.CheckpointSection = sections.CheckpointSection()
    log: sections.LogSection = sections.LogSection()

    def __post_init__(self) -> None:
        if self.weights.bridge != "shared":
            ours = {"[capture] mode": self.capture.mode != "off", "[control] enabled": self.control.enabled}
            for key in (key for key, on in ours.items() if on):
                raise ValueError(
                    f'{key} needs our own vLLM, and [weights] bridge = "{self.weights.bridge}" has engines elsewhere; '
                    "turn one of them off"
                )
        if self.weights.bridge == "lora" and not self.weights.base and self.checkpoint.keep_base == "off":
            raise ValueError(
                '[weights] bridge = "lora" needs the weights before the first step: set base to the model directory '
                'that the engines have loaded, or [checkpoint] keep_base = "auto"'
            )
        if (listen := self.control.address) is not None:
            if not listen.local and not self.engine.api_key:
                raise ValueError(
                    f'[control] listen = "{listen}" would let whoever reaches it write the weights; set [engine] '
                    'api_key, or listen = "127.0.0.1:8001"'
                )
            if listen.port == self.engine.port:
                raise ValueError(f'[control] listen = "{listen}" has the port of the engine; choose another one')
        names = [one.name for one in self.endpoint]
        for kind in NAMED:
            each = [one.name for one in getattr(self, kind)]
            for name in each:
                if each.count(name) > 1:
                    raise ValueError(f'[[{kind}]] name = "{name}" is used twice')
        for one in self.environment:
            if one.temperature != 1.0 and "processed_logprobs" not in " ".join(self.engine.args):
                raise ValueError(
                    f"[[environment]] {one.name} temperature = {one.temperature:g}: the engine gives log-probabilities "
                    'at 1; set [engine] args = ["--logprobs-mode", "processed_logprobs"], or temperature = 1'
                )
            if one.terms.kl and self.checkpoint.keep_base == "off":
                raise ValueError(
                    f"[[environment]] {one.name}: terms kl holds answers near the weights before the first step; set "
                    '[checkpoint] keep_base = "auto", or kl = 0'
                )
        named = [("[judge] endpoint", self.judge.endpoint), ("[dream] endpoint", self.dream.endpoint)]
        named += [(f"[[environment]] {one.name} teacher", one.teacher) for one in self.environment]
        for key, name in named:
            if name and name not in names:
                known = ", ".join(names) or "there is none"
                raise ValueError(f'{key} = "{name}" names no [[endpoint]]: {known}')
        for one in self.environment:
            if one.teacher and not next(each for each in self.endpoint if each.name == one.teacher).tokenizer:
                raise ValueError(
                    f"[[endpoint]] {one.teacher} is the teacher of [[environment]] {one.name}: set tokenizer to a "
                    "directory with its tokenizer.json, since both have to have the same vocabulary"
                )

    def endpoint_named(self, name: str) -> sections.EndpointSection | None:
        """The endpoint of this name; None for an empty one, which stands for our own engine."""
        return next((one for one in self.endpoint if one.name == name), None)

    @property
    def state_dir(self) -> Path:
        return Path(self.state.dir).expanduser().absolute()

    @property
    def runtime_dir(self) -> Path:
        """Directory of sockets: $RUNTIME_DIRECTORY of the service manager, or `run` in the state directory."""
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
    def sent_dir(self) -> Path:
        """Directory for versions of the weights that engines elsewhere load."""
        given = self.weights.directory
        return Path(given).expanduser().absolute() if given else self.state_dir / "sent"

    @property
    def base_dir(self) -> Path:
        """Directory where the weights before the first step are kept ([checkpoint] keep_base)."""
        return self.state_dir / "base" / Path(self.model.path).expanduser().absolute().name

    @property
    def key_path(self) -> Path:
        """Key file for apollod's HTTP routes, for other users who may train (`apollod init`)."""
        return self.state_dir / "key"

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
        """True if this is our own engine's address, under any name of this machine."""
        url, host = urlsplit(base_url), self.engine.host
        port = url.port or (443 if url.scheme == "https" else 80)
        return port == self.engine.port and (url.hostname == host or {url.hostname, host} <= HERE)

    def settings(self) -> Settings:
        """Settings that decisions depend on; recorded in the journal."""
        same = {
            one.name: narrowed(getattr(self, one.name), type(one.default))
            for one in msgspec.structs.fields(Settings)
            if isinstance(one.default, msgspec.Struct)
        }
        return Settings(
            model_path=str(Path(self.model.path).expanduser().absolute()),
            environment=tuple(narrowed(one, EnvironmentSettings) for one in self.environment),
            checkpoint_hook=bool(self.checkpoint.hook), on_alarm=bool(self.quality.on_alarm), **same,
        )  # fmt: skip

    def optimizer(self) -> OptimizerSettings:
        """Settings for the trainer."""
        return narrowed(self.trainer, OptimizerSettings)


def load_config(
    path: str | None, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ,
    warn: Callable[[str], object] = lambda text: None,
) -> Config:  # fmt: skip
    """Read and check the configuration; raises ConfigError with the offending key and the nearest known one,
    NotPermitted for a file that may not be read. `warn`: called with a line about each retired key."""
    tree = _file(path) if path is not None else {}
    _check_keys(tree, Config, "")
    _overlay(tree, _credentials(environ.get("CREDENTIALS_DIRECTORY", "")))
    _overlay(tree, _environment(environ))
    _overlay(tree, [_flag(text) for text in overrides])
    _replace_retired(tree, warn)
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
    """One value from outside of the file; `origin`: its place, as the user knows it."""

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
    """Files named `section.key`. The service manager puts other credentials there as well: those that name none of our
    sections are ignored."""
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
            found.append(_Value(name, section, key.replace("__", "."), environ[name]))
    return found


def _flag(text: str) -> _Value:
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot:
        raise ConfigError(f"--set {text!r} is not section.key=value", "for example --set trainer.lr=1e-4")
    return _Value(f"--set {name.strip()}", section, key, value.strip())


def _overlay(tree: dict[str, Any], values: Sequence[_Value]) -> None:
    """Replace values in a tree whose keys were checked."""
    for origin, section, key, raw in values:
        kind, listed = _table(_known(Config, section, "", origin))
        table = tree.setdefault(section, [] if listed else {})
        if listed:
            name, dot, key = key.partition(".")
            if section not in NAMED or not dot:
                hint = f"name one: {section}.NAME.key" if section in NAMED else "write them in the TOML file"
                raise ConfigError(f"{origin}: there may be several [[{section}]], so one value cannot be set", hint)
            table = _named(table, name)
        try:
            value = raw if _known(kind, key, section, origin) is str else tomllib.loads(f"v = {raw}")["v"]
        except (tomllib.TOMLDecodeError, RecursionError):
            value = raw
        table[key] = value


def _named(tables: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The table of this name, made if there is none."""
    table = next((table for table in tables if table.get("name") == name), None)
    if table is None:
        tables.append(table := {"name": name})
    return table


def _replace_retired(tree: dict[str, Any], warn: Callable[[str], object]) -> None:
    """Remove retired keys from a tree whose keys were checked. A key that moved goes into the [[endpoint]] that its
    section names, by default one with the name of the section; a value that is set there already stays."""
    for dotted, (instead, moved) in sections.RETIRED.items():
        section, _, key = dotted.partition(".")
        if key not in tree.get(section, {}):
            continue
        value = tree[section].pop(key)
        warn(f"[{section}] {key} is no setting any more: {instead}")
        if moved and value != "":
            name = tree[section].setdefault("endpoint", section)
            _named(tree.setdefault("endpoint", []), name).setdefault(moved, value)


def _check_keys(tree: dict[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    """Check that tables are tables and all keys in them are known. Values are left to the conversion."""
    for key, value in tree.items():
        inner, listed = _table(_known(kind, key, where))
        if inner is None:
            continue
        tables = value if listed else [value]
        name = f"{where}.{key}" if where else key
        header = f"[[{name}]]" if listed else f"[{name}]"
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ConfigError(
                f"{key!r} is no {'list of tables' if listed else 'table'}", f"write {header}, and its keys below"
            )
        for table in tables:
            _check_keys(table, inner, name)


def _check_finite(value: Any, where: str = "") -> None:
    """Refuse NaN and infinity: JSON cannot hold them, and a NaN passes every bound."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} = {value}", "use a number, or 0 where that means no limit")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_finite(inner, f"{where} {key}" if where else f"[{key}]")
    elif isinstance(value, list):
        for inner in value:
            _check_finite(inner, where)


def _check_choices(tree: dict[str, Any]) -> None:
    """Refuse a text outside the choices of a key, or of a list, and name the nearest one."""
    for section, value in tree.items():
        _check_table(_known(Config, section, ""), value, section)


def _check_table(type_: Any, value: Any, section: str) -> None:
    kind, listed = _table(type_)
    for table in value if listed and isinstance(value, list) else [value]:
        for key, given in table.items() if isinstance(table, dict) and kind is not None else ():
            found = _known(kind, key, section)
            _check_table(found, given, f"{section}.{key}")
            for text in given if isinstance(given, list) else [given]:
                if (choices := _choices(found)) and isinstance(text, str) and text not in choices:
                    place = f"[[{section}]] {key}" if listed else f"{section}.{key}"
                    raise ConfigError(
                        f"{place} = {text!r} is no value of it",
                        f"did you mean {nearest(text, choices)!r}? one of: {', '.join(choices)}",
                    )


def _choices(kind: Any) -> tuple[str, ...]:
    """Allowed values of a key with choices, or with a list of them; empty for others."""
    inner = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return get_args(inner) if get_origin(inner) is Literal else ()


def _known(kind: type[msgspec.Struct], key: str, where: str, origin: str = "") -> Any:
    """The type of a key; raises ConfigError for an unknown key. A retired one takes any value, or a text to move."""
    if retired := sections.RETIRED.get(f"{where}.{key}"):
        return str if retired.moved else object
    known = {
        field.encode_name: field.type
        for field in msgspec.structs.fields(kind)
        if f"{where}.{field.encode_name}" not in sections.RETIRED
    }
    if key not in known:
        place = f" in [{where}]" if where else ""
        said = f"{origin}: " if origin else ""
        hint = f"did you mean {nearest(key, known)!r}? known: {', '.join(known)}"
        raise ConfigError(f"{said}unknown key {key!r}{place}", hint)
    found = known[key]
    return get_args(found)[0] if get_origin(found) is Annotated else found


def _table(kind: Any) -> tuple[Any, bool]:
    """The section type of a key, and True if it may occur several times; None for a plain value."""
    listed = get_origin(kind) is tuple
    inner = get_args(kind)[0] if listed else kind
    return (inner, listed) if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else (None, False)


def exposures(config: Config) -> list[str]:
    """One line for each, with the fix; empty: only this user and root have access, as far as can be seen here."""
    engine, found = config.engine, list[str]()
    if not is_loopback(engine.host) and not engine.api_key:
        found.append(
            f"whoever reaches {config.url} may teach this model and read what it says of others: set [engine] api_key, "
            'or host = "127.0.0.1"'
        )
    model = Path(config.model.path)
    for name, path in {
        "inbox": config.inbox_dir,
        "state directory": config.state_dir,
        "model directory": model,
    }.items():
        if mode := _open_to_others(path):
            found.append(f"the {name} can be written by others (mode {mode:04o}): `chmod go-w {path}`")
    return found


def _open_to_others(path: Path) -> int:
    """Permissions of a directory into which others may write; 0: they may not, or it does not exist. The group of this
    process counts as private to its user, as on most systems."""
    try:
        found = path.stat()
    except OSError:
        return 0
    mode = stat.S_IMODE(found.st_mode)
    others = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and found.st_gid != os.getgid())
    return mode if others else 0
