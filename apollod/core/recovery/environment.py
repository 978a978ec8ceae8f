"""The environment that determines a step's bits, resolved where the setting says "auto" or 0. Recorded with every
`trainer.bound`."""

from collections.abc import Mapping

CHOSEN = ("threads", "kernels")
"""Keys of [trainer], and of `TrainerBound.versions`."""


def differing_choice(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Key of [trainer] that is not the same in both; None where all are, or nothing says what they were."""
    return next((key for key in CHOSEN if key in then and key in now and then[key] != now[key]), None)


def chosen(values: Mapping[str, str], key: str) -> int | str:
    """The value as [trainer] takes it."""
    return int(values[key]) if key == "threads" and values[key].isdigit() else values[key]


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """All that differs, for people."""
    return ", ".join(
        f"{name} {then[name]} then, {now[name]} now" for name in then if name in now and then[name] != now[name]
    )
