"""The result of a soak: figures and misses, from the records of all its parts. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.soak import leaks
from benchmarks.soak.leaks import BOUNDS, HOUR, MIB, Trend

Record = dict[str, Any]

DOWN_S = 300.0
"""seconds within which users are served again after an act that ends serving"""
ACT_S = 200.0
"""longest act: a hung engine is ended after [engine] stall_s"""
ENDS_SERVING = ("kill", "hang", "hang for good", "disk", "restart", "start")
"""acts after which users may be without an answer; a killed trainer is none of them"""
SPARED = ("trainer",)
"""victims without which users are still served"""
LATE_S = 30.0
"""bound of the 99th percentile of users' requests while nothing was down; the machine may be shared"""
STUCK_S = 900.0
"""longest allowed time without a completed step"""


class Window:
    """The time from an act that may end serving until users have to be served again."""

    def __init__(self, act: Record) -> None:
        self.began = float(act["at"])
        self.ends = float(act["until"]) + DOWN_S * float(act.get("slack", 1.0))
        self.told = f"{act['kind']}: {act['told'][:60]}"

    def holds(self, answer: Record) -> bool:
        """Does this request overlap it?"""
        return answer["at"] < self.ends and answer["at"] + answer["seconds"] > self.began


def windows(acts: Iterable[Record]) -> list[Window]:
    """The windows of all acts that may end serving."""
    return [
        Window(act) for act in acts
        if act["kind"] in ENDS_SERVING and not act["told"].startswith(SPARED)
    ]  # fmt: skip


def serving(answers: Sequence[Record], acts: Sequence[Record], slack: float = 1.0) -> tuple[Record, list[str]]:
    """Figures of users' requests, and misses."""
    known = windows(acts)
    ends = Counter(str(one["end"]) for one in answers)
    bad = [one for one in answers if one["end"] != "good" or not one.get("labelled", True)]
    amiss = [one for one in bad if one["end"] == "malformed" or not any(w.holds(one) for w in known)]
    calm = sorted(one["seconds"] for one in answers if one["end"] == "good" and not any(w.holds(one) for w in known))
    seconds = sorted(one["seconds"] for one in answers if one["end"] == "good")
    downs = outages(answers)
    right = [one["right"] for one in answers if one["end"] == "good" and "right" in one and one["way"] != "cancelled"]
    figures = {
        "requests": len(answers), **{f"requests_{name}": count for name, count in sorted(ends.items())},
        "requests_unlabelled": sum(not one.get("labelled", True) for one in answers),
        "p50_s": _share(seconds, 0.5), "p99_s": _share(seconds, 0.99),
        "calm_p50_s": _share(calm, 0.5), "calm_p99_s": _share(calm, 0.99),
        "outages": len(downs), "down_s": sum(downs), "down_max_s": max(downs, default=0.0),
        "answers_of_the_world": sum(right) / len(right) if right else 0.0,
    }  # fmt: skip
    missed = [f"{len(amiss)} answers outside any outage, such as {amiss[0]}"] if amiss else []
    if figures["down_max_s"] > (DOWN_S + ACT_S) * slack:
        missed.append(f"users were without an answer for {figures['down_max_s']:.0f} s")
    if figures["calm_p99_s"] > LATE_S * slack:
        missed.append(f"the 99th percentile of users' requests is {figures['calm_p99_s']:.1f} s")
    return figures, missed


def outages(answers: Iterable[Record]) -> list[float]:
    """Seconds from the start of each first unanswered request to the end of the next answered one; the time between two
    parts does not count."""
    found, since, part = list[float](), None, None
    for one in sorted(answers, key=lambda one: float(one["at"])):
        if one["part"] != part:
            since, part = None, one["part"]
        if one["end"] in ("down", "late") and since is None:
            since = float(one["at"])
        elif one["end"] == "good" and since is not None:
            found.append(one["at"] + one["seconds"] - since)
            since = None
    return found


def learning(status: Sequence[Record], parts: Sequence[Record], slack: float = 1.0) -> tuple[Record, list[str]]:
    """Figures of steps and states, and misses."""
    last = status[-1] if status else {}
    stuck = _longest_without_step(status, parts)
    figures = {
        "steps": last.get("steps", 0), "events": last.get("events", 0),
        "longest_without_step_s": stuck,
        **{f"state_{name}": count for name, count in sorted(Counter(one["state"] for one in status).items())},
    }  # fmt: skip
    return figures, [f"no step for {stuck:.0f} s"] if stuck > STUCK_S * slack else []


def _longest_without_step(status: Sequence[Record], parts: Sequence[Record]) -> float:
    longest = 0.0
    for part in {one["part"] for one in parts}:
        since, steps = None, -1
        for one in status:
            if one["part"] == part:
                if since is None or one["steps"] != steps:
                    since, steps = one["at"], one["steps"]
                longest = max(longest, one["at"] - since)
    return longest


def by_role(samples: Iterable[Record]) -> dict[str, dict[str, list[list[leaks.Sample]]]]:
    """role -> figure -> its samples, by life of a process."""
    lives: dict[tuple[str, int, int], dict[str, list[leaks.Sample]]] = defaultdict(lambda: defaultdict(list))
    for look in samples:
        for one in look["processes"]:
            for figure in (*BOUNDS, "rss", "pss", "cpu_s"):
                lives[one["role"], one["pid"], one["began"]][figure].append((look["at"], float(one.get(figure, 0.0))))
    found: dict[str, dict[str, list[list[leaks.Sample]]]] = defaultdict(lambda: defaultdict(list))
    for (role, _, _), figures in lives.items():
        for figure, life in figures.items():
            found[role][figure].append(life)
    return found


def memory(samples: Sequence[Record]) -> tuple[dict[str, Record], list[str]]:
    """Memory and other figures of processes by role, with their trends; and leaks."""
    figures, missed = dict[str, Record](), list[str]()
    for role, found in sorted(by_role(samples).items()):
        if role in ("other", "replay"):
            continue
        spent = [(life[-1][1] - life[0][1], life[-1][0] - life[0][0]) for life in found.pop("cpu_s") if life[-1][1]]
        trends = {figure: leaks.trend(found[figure]) for figure in BOUNDS}
        figures[role] = {
            "lives": len(found["rss"]),
            "cpu": _ratio(spent),
            **_held(found),
            "trends": {k: t._asdict() for k, t in trends.items()},
        }
        missed += [leak_line(role, k, t) for k, t in trends.items() if leaks.is_leak(k, t)]
    return figures, missed


def leak_line(role: str, figure: str, found: Trend) -> str:
    """A leak, as text for people."""
    return (
        f"{role}: {figure} rises by {found.slope:.0f} in an hour (at most {BOUNDS[figure]:.0f}; "
        f"{found.sure:.1f} standard deviations, {found.lives} lives, {found.seconds:.0f} s)"
    )


def _ratio(spent: Sequence[tuple[float, float]]) -> float:
    """CPU time as a share of one core, during the lives of the processes."""
    lived = sum(seconds for _, seconds in spent)
    return sum(cpu_s for cpu_s, _ in spent) / lived if lived else 0.0


def _held(found: dict[str, list[list[leaks.Sample]]]) -> Record:
    """Median and maximum of each figure over all samples."""
    held: Record = {}
    for figure, lives in found.items():
        values = sorted(value for life in lives for _, value in life)
        held[figure] = {"median": _share(values, 0.5), "max": values[-1]}
    return held


def disk(samples: Sequence[Record]) -> Record:
    """Bytes below the state directory at the first and the last sample, by name."""
    first, last = (samples[0]["state"], samples[-1]["state"]) if samples else ({}, {})
    return {name: {"first": first.get(name, 0), "last": last[name]} for name in sorted(last)}


def summary(records: dict[str, list[Record]]) -> Record:
    """The summary of all parts: `figures`, and `missed`, empty if all is well."""
    parts = records["parts"]
    slack = max((float(one.get("slack", 1.0)) for one in parts), default=1.0)
    served, missed = serving(records["answers"], records["acts"], slack)
    learned, more = learning(records["status"], parts, slack)
    held, leaking = memory(records["samples"])
    missed += more + leaking + [f"{one['what']}: {one['told'][:300]}" for one in records["missed"]]
    ended = [one for one in parts if "seconds" in one]
    acts = Counter(one["kind"] for one in records["acts"])
    return {
        "schema_version": 1, "parts": len({one["part"] for one in parts}), "parts_ended": len(ended),
        "hours": sum(one["seconds"] for one in ended) / HOUR, "acts": dict(sorted(acts.items())),
        "kills": dict(sorted(Counter(o["told"] for o in records["acts"] if o["kind"] == "kill").items())),
        "serving": served, "learning": learned, "memory": held, "disk": disk(records["samples"]),
        "replays": [one["replay"] for one in ended], "kinds": ended[-1]["kinds"] if ended else {}, "missed": missed,
    }  # fmt: skip


def rows(found: Record) -> list[list[str]]:
    """Rows of the table of processes."""
    return [
        [
            role, str(one["lives"]), f"{one['cpu']:.2f}",
            *(f"{one[figure]['median'] / MIB:.0f}" for figure in ("rss", "pss", "anonymous")),
            _trend(one["trends"]["anonymous"], MIB), f"{one['descriptors']['median']:.0f}",
            _trend(one["trends"]["descriptors"], 1.0), f"{one['threads']['median']:.0f}",
            _trend(one["trends"]["threads"], 1.0),
        ]
        for role, one in found["memory"].items()
    ]  # fmt: skip


COLUMNS = (
    "process", "lives", "cores", "RSS MiB", "PSS MiB", "allocated MiB", "MiB/h", "files", "files/h", "threads",
    "threads/h",
)  # fmt: skip


def _trend(found: Record, unit: float) -> str:
    return f"{found['slope'] / unit:+.1f}" if found["told"] else "too short"


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
