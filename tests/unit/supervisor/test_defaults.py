"""What a configuration that names only a model means: the defaults that the docs promise, and that nobody has to look
up.

Written down again on purpose. Bits of every step depend on most of them: a journal of yesterday is replayed with what
it recorded, but tomorrow's steps of the same configuration would be others.
"""

from typing import Any

import msgspec
import pytest

from apollod.core.events import Settings
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.sections import (
    RETIRED,
    EndpointSection,
    EnvironmentSection,
    ModelSection,
    ReceiverSection,
    WatchSection,
)
from apollod.wire.messages import OptimizerSettings

PROMISED: dict[str, dict[str, Any]] = {
    "state": {"dir": "/var/lib/apollod"},
    "engine": {
        "host": "127.0.0.1", "port": 8000, "args": (), "served_name": "apollo", "api_key": "", "threads": 0,
        "kv_cache_mib": 0,
        "start_timeout_s": 1800.0, "stall_s": 1800.0, "names": (),
    },
    "trainer": {
        "optimizer": "apollo", "lr": 1e-5, "lr_direct": 0.0, "rank": 64, "scale": "channel", "limiter": 1.01,
        "moments": "float32",
        "betas": (0.9, 0.999), "weight_decay": 0.0, "warmup": 0.1,
        "warmup_steps": 8, "schedule": "constant", "lr_floor": 0.1,
        "accumulate": 1,
        "layers": "", "freeze": (), "loss_min": 0.001,
        "loss_max": 0.0, "loss_spike": 0.0, "rounding": "stochastic", "max_tokens": 4096,
        "seed": 0,
        "gradient_checkpointing": "auto", "publish": "hogwild", "fence_max_s": 60.0, "cache": "reset",
        "align_every": 100, "align_max": 0.0, "kernels": "auto", "products": "auto",
        "stall_s": 1800.0, "stop_s": 60.0, "threads": 0, "rescore": 64,
    },
    "inbox": {
        "path": "", "max_line_bytes": 1 << 20, "near_duplicate": 0.9, "review": "auto",
        "learn": "unrejected",
    },
    "capture": {"mode": "off", "max_bytes": 256 << 20, "keep_s": 86400.0},
    "preferences": {
        "pairs": "sft", "ratings": "sft", "beta": 0.1, "smoothing": 0.0, "sft": 0.0, "bad": 1.0, "ratings_per_step": 8,
    },
    "control": {
        "durable": "payload", "lease_s": 600.0, "enabled": False, "directories": (), "addresses": (),
        "receive_s": 300.0, "pause_s": 600.0, "moments": "keep", "listen": "",
    },
    "weights": {
        "bridge": "shared", "receiver": (), "directory": "", "command": (), "rank": 64, "base": "", "timeout_s": 600.0,
    },
    "review": {
        "hold_days": 30.0, "divergence": "held", "forget_steps": 1000, "alternate": False,
    },
    "queue": {"share_max": 1.0, "expire_days": 0.0},
    "judge": {
        "mode": "off", "endpoint": "", "votes": 3, "temperature": 0.7, "concurrency": 1, "attempts": 3,
        "trust_min": 0.8, "check_every": 20, "thinking": "template", "timeout_s": 120.0, "max_tokens": 2048,
        "cases": (),
    },
    "schedule": {"nightly": "", "zone": "", "accumulate": 0, "catch_up": True, "dream": "any"},
    "signals": {"score": "auto"},
    "quality": {
        "every_steps": 50, "margin": 0.05, "kl_margin": 1.0, "resume": "auto", "culprits_max": 8, "replay_s": 0.0,
        "cost": 0.05, "probe": (), "levels": 3, "on_alarm": "",
    },
    "dream": {
        "mode": "idle", "idle_s": 60.0, "temperature": 1.0, "thinking": "off",
        "attempts": 3, "share_max": 0.9,
        "surroundings": ("none", "neutral", "agent", "own"), "pattern": (), "endpoint": "",
        "timeout_s": 120.0, "max_tokens": 1024, "answer_tokens": 1024,
    },
    "checkpoint": {
        "delay_s": 600.0, "every_s": 600.0, "keep_base": "auto", "keep": 20, "keep_bytes": "auto",
        "undo_bytes": "auto", "hook": (),
        "hook_timeout_s": 3600.0, "replay_max": 1000,
    },
    "lessons": {
        "hold": 3.0, "hold_cost": 0.3, "practice": "given", "thinking": "off", "steps": 24, "drift": 0.05,
        "direct": True, "nightly": False, "ask_again": ("10 steps", "40 steps", "160 steps", "1d", "1w", "30d"),
    },
    "log": {"level": "info", "format": "auto"},
    "redaction": {"personal": False},
}  # fmt: skip


@pytest.fixture
def config() -> Config:
    return load_config(None, ["model.path=/m"], {})


@pytest.mark.parametrize("section", PROMISED)
def test_a_section_that_is_left_out_is_as_promised(config: Config, section: str) -> None:
    found = msgspec.to_builtins(getattr(config, section))
    assert {key: value for key, value in found.items() if f"{section}.{key}" not in RETIRED} == PROMISED[section]


def test_every_section_is_promised_something(config: Config) -> None:
    assert msgspec.structs.asdict(config).keys() - {"model", "watch", "endpoint", "environment"} == PROMISED.keys()
    assert config.watch == config.endpoint == config.environment == () and config.model.path == "/m"


def test_every_key_of_a_table_without_defaults_is_listed_here() -> None:
    kinds = {"model": ModelSection, "watch": WatchSection, "endpoint": EndpointSection}
    kinds |= {"environment": EnvironmentSection, "weights.receiver": ReceiverSection}
    assert {name: list(kind.__struct_fields__) for name, kind in kinds.items()} == {
        "model": ["path"],
        "watch": [
            "path", "format", "mode", "models", "strip", "strip_patterns", "sidechains", "tier", "context_tokens",
            "settle_s", "poll_s", "review", "learn",
        ],
        "endpoint": ["name", "base_url", "model", "api_key", "tokenizer"],
        "environment": [
            "name", "group", "ahead", "age_max", "lr", "rails", "kind", "entry", "python", "variables", "settings",
            "url", "api_key", "timeout_s", "max_tokens", "temperature", "thinking", "objective", "teacher", "terms",
        ],
        "weights.receiver": ["url", "dialect", "model", "api_key", "directory"],
    }  # fmt: skip


def test_what_is_recorded_and_what_the_trainer_is_told_have_the_same_defaults(config: Config) -> None:
    """A field that an older journal or frame does not have takes the default of the message, not of the
    configuration."""
    assert Settings(model_path="/m") == config.settings()
    assert OptimizerSettings() == config.optimizer()


def test_what_a_default_of_0_stands_for(config: Config) -> None:
    assert (config.settings().trainer.lr, config.settings().trainer.direct_rate) == (1e-5, 1e-4)
    assert (
        str(config.inbox_dir) == "/var/lib/apollod/inbox" and str(config.journal_path) == "/var/lib/apollod/journal.db"
    )
