"""The environment that determines a step's bits, with settings "auto" and 0 resolved. Recorded with every
`trainer.bound`."""

from collections.abc import Mapping

CHOSEN = ("threads", "kernels")
"""Keys of [trainer], and of `TrainerBound.versions`, that are resolved."""


def differing_choice(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """First key of [trainer] that differs; None if none does, or the values are not recorded."""
    return next((key for key in CHOSEN if key in then and key in now and then[key] != now[key]), None)


def chosen(values: Mapping[str, str], key: str) -> int | str:
    """The value in the type of [trainer]."""
    return int(values[key]) if key == "threads" and values[key].isdigit() else values[key]


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """All differences, for people."""
    return ", ".join(
        f"{name} {then[name]} then, {now[name]} now" for name in then if name in now and then[name] != now[name]
    )
