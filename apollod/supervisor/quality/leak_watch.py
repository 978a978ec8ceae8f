"""Finds examples that hold a probe, among new and all accepted ones. A learned probe measures nothing, so the user's
own probes must not be learned. Probes that come with apollod are left out from then on instead, since users may teach
such a question without knowing the probe."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from apollod.adapters.journal import examples
from apollod.curation.probes.leaks import Leaks
from apollod.curation.probes.probe_item import Probe
from apollod.errors import ConfigError
from apollod.supervisor.config import Config
from apollod.supervisor.quality.prober import is_persons, is_shipped, probes_of

COUNTED = ("pending", "judged", "trained")
"""states (`examples.states`) of examples that were or will be learned. Examples held for a person, declined,
withdrawn or undone are learned only on request, and count from then on."""


class Leak(NamedTuple):
    """An example that holds a probe. `what`: part of the probe; `place`: source of the example."""

    probe: Probe
    what: str
    example: str
    place: str
    state: str


class LeakWatch:
    """Remembers how far the journals were searched, and the few examples that hold a probe."""

    def __init__(self, journal: Path, probes: Iterable[Probe] = ()) -> None:
        self._journal = journal
        self._take(tuple(probes))

    def _take(self, probes: tuple[Probe, ...]) -> None:
        self._leaks, self._probes = Leaks(probes), probes
        self._refused = _refused(probes)
        self._seen: dict[Path, int] = {}
        """by journal, the event up to which all examples were searched"""
        self._found: dict[str, dict[str, str]] = {}
        """by example and probe, the part that it holds"""

    def said_of(self, records: Sequence[bytes]) -> list[str]:
        """For each of these canonical records, the part of a probe for which it is not learned, for people; empty:
        none. Blocking."""
        leaks = self._refused
        return [next(iter(leaks.of(record).values()), "") for record in records]

    async def leaks(self, probes: tuple[Probe, ...]) -> list[Leak]:
        """Probes that are held by an example which was or will be learned, in their order, with one example each. From
        now on these probes are watched. Raises JournalError. Not reentrant."""
        if probes != self._probes:
            await anyio.to_thread.run_sync(self._take, probes)
        journals = await anyio.to_thread.run_sync(examples.journals, self._journal)
        for journal in journals:
            while await anyio.to_thread.run_sync(self._look, journal):  # in pages, so that a stop waits for few
                pass
        return await anyio.to_thread.run_sync(self._counted, journals) if self._found else []

    def _look(self, journal: Path) -> bool:
        """Search the next examples. False: there were none."""
        page = examples.accepted_after(journal, self._seen.get(journal, 0))
        for one in page:
            if found := self._leaks.of(one.record):
                self._found[one.example] = found
        if page:
            self._seen[journal] = page[-1].seq
        return bool(page)

    def _counted(self, journals: Sequence[Path]) -> list[Leak]:
        states: dict[str, tuple[str, Path]] = {}
        for journal in journals:  # an archive's state of a carried example is older
            for example, state in examples.states(journal):
                if example in self._found:
                    states.setdefault(example, (state, journal))
        counted = {example: state for example, state in states.items() if state[0] in COUNTED}
        holder: dict[str, str] = {}
        for example in sorted(counted, key=lambda example: counted[example][0] != "trained"):
            for probe in self._found[example]:
                holder.setdefault(probe, example)
        places: dict[str, str] = {}
        for journal in journals:
            if own := [example for example in set(holder.values()) if counted[example][1] == journal]:
                places |= examples.places(journal, own)
        return [
            Leak(probe, self._found[one][probe.id], one, places[one], counted[one][0])
            for probe in self._probes
            if (one := holder.get(probe.id)) is not None
        ]


def would_hold(config: Config) -> Callable[[bytes], str]:
    """A function that returns the part of a probe for which the daemon would hold a canonical record, for people;
    empty: none, or no guard. Raises ConfigError for unusable probes. Blocking."""
    leaks = _refused(probes_of(config) if config.quality.is_on else ())
    return lambda record: next(iter(leaks.of(record).values()), "")


def _refused(probes: Iterable[Probe]) -> Leaks:
    return Leaks(probe for probe in probes if not is_shipped(probe))


def left_out(leaks: Sequence[Leak]) -> dict[str, str]:
    """Leaked probes to leave out, as in `QualityMeasured`: those that come with apollod or belong to patterns, since
    users cannot edit them, and logs that happen to hold one must not stop training. Raises ConfigError for one of the
    user's own."""
    own = [leak for leak in leaks if is_persons(leak.probe)]
    if own:
        raise _refusal(own[0], len(own) - 1)
    return {leak.probe.id: f"{leak.example} of {leak.place}" for leak in leaks}


def _refusal(leak: Leak, others: int) -> ConfigError:
    what = f"[quality] probe: the example {leak.example} of {leak.place} holds {leak.what}"
    more = f" (and so do examples with {others} more)" if others else ""
    if leak.state == "trained":
        return ConfigError(
            f"{what} and was learned, so that this measures nothing any more{more}",
            "take the probe out of its file, then `apollod ctl quality baseline`",
        )
    waits, verb = ("for the judge", "decline") if leak.state == "judged" else ("to be learned", "withdraw")
    return ConfigError(
        f"{what} and waits {waits}{more}",
        f"take the probe out of its file, or have the example not learned: `apollod ctl example {verb} {leak.example}`",
    )
