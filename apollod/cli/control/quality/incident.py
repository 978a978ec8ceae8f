"""Alarms as the journal has them, from the first drop to the measurement afterwards: a list, each as a story, and the
examples that an alarm blames.

Events of the guard are read in their order; of examples only those that an alarm is about are looked up.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from apollod.adapters.journal.journal_reader import stream
from apollod.adapters.system.clock import iso
from apollod.cli import render
from apollod.cli.control import rows
from apollod.cli.control.examples.example_text import parts
from apollod.cli.control.quality.incident_words import OUTCOMES, TOLD_OF, WAITS_FOR, row, verdict
from apollod.core import events as ev
from apollod.core.facts.quality.state import GUARD
from apollod.core.fold import fold_slices
from apollod.core.rules.quality.fold import FOLDS
from apollod.core.rules.quality.status import Story, tell
from apollod.core.settings import QualitySettings
from apollod.core.state import State
from apollod.errors import ApolloError

Object = dict[str, Any]

STEPS = (ev.StepStarted, ev.StepCompleted, ev.StepFailed, ev.WindowClosed)
"""Followed by the guard's fold, and not read: what only the next decisions depend on."""
_KINDS = rows.among(one.kind for one in FOLDS if one not in STEPS)
_SINCE = "seq > (SELECT min(seq) FROM events WHERE kind = 'quality.alarmed')"
_WHERE = (
    f"kind IN {_KINDS} OR (kind = 'step.started' AND {_SINCE} AND body ->> '$.again_of' > 0) "
    f"OR (kind = 'example.held' AND {_SINCE} AND body ->> '$.by' = '{GUARD}')"
)
"""Events of the guard, steps that repeat another one, and examples that it held."""


class GuardRecord:
    """The records taken so far: the state, the last look (None before it), all looks, and incidents, oldest first."""

    def __init__(self) -> None:
        self.state = State()
        self.last: ev.QualityMeasured | None = None
        self.looks: list[Object] = []
        self.stories: list[Story] = []
        self._before: dict[str, str] = {}
        """by probe, its answer at the baseline"""

    @property
    def settings(self) -> QualitySettings:
        """Settings of the daemon's last start."""
        settings = self.state.daemon.settings
        return settings.quality if settings is not None else QualitySettings()

    def take(self, recorded: ev.Recorded) -> None:
        """Take the next event, in the order of the journal."""
        fold_slices(self.state, recorded, ("quality", "daemon"))
        tell(self.stories, recorded, self.state)
        match recorded.event:
            case ev.QualityMeasured() as e:
                self.last = e
                if e.why == "baseline":
                    self._before |= e.answers
                look = _look(recorded, e.number, e.why, e.step, e.seconds)
                self.looks.append(look | {"left_out": e.left_out})
            case ev.QualityFailed() as e:
                look = _look(recorded, e.number, None, None, 0.0)
                self.looks.append(look | {"outcome": "failed", "reason": e.reason})
            case ev.QualityAlarmed() as e if self.last is not None:
                self.looks[-1] |= {"outcome": "alarm", "incident": e.incident}
                now = self.last.answers
                self.stories[-1].answers = {id_: (self._before.get(id_, ""), text) for id_, text in now.items()}


def _look(recorded: ev.Recorded, number: int, why: str | None, step: int | None, seconds: float) -> Object:
    return {
        "number": number, "at": iso(recorded.at_ns), "seq": recorded.seq, "why": why, "step": step, "seconds": seconds,
        "outcome": "baseline" if why == "baseline" else "passed", "incident": None, "reason": None,
        "left_out": {},
    }  # fmt: skip


def read(path: str) -> GuardRecord:
    """Read a whole journal."""
    found = GuardRecord()
    for one in rows.events(path, _WHERE):
        found.take(ev.Recorded(*one))
    return found


_DECIDED = ("example.approved", "example.declined", "example.edited", "example.requeued")


def incidents(path: str) -> list[Object]:
    """All alarms, the newest first, with the lines of the examples that did it; `examples` are ids."""
    found = [row(one) for one in read(path).stories]
    lines = culprit_lines(path, set[str]().union(*(_named(one) for one in found)))
    return _with_lines(path, found, found, lines)[::-1]


def incident(path: str, number: int | None) -> Object:
    """One alarm, or the last one, with the line of each example that its steps had learned. Raises ApolloError if there
    is none."""
    found = [row(one) for one in read(path).stories]
    one = next((one for one in reversed(found) if number in (None, one["incident"])), None)
    if one is None and number is None:
        raise ApolloError("the guard raised no alarm", "`apollod ctl quality report` says what was measured")
    if one is None:
        last = f"the last one is {found[-1]['incident']}" if found else "the guard raised no alarm"
        raise ApolloError(f"there is no incident {number}: {last}", "`apollod ctl quality incident list` has them")
    lines = culprit_lines(path, _named(one) | set(one["examples"]))
    (told,) = _with_lines(path, [one], found, lines)
    return told | {"examples": [lines[each] for each in one["examples"]]}


def _with_lines(path: str, found: list[Object], all_: list[Object], lines: Mapping[str, Object]) -> list[Object]:
    """Alarms with the examples that they name (`lines`), and the decisions about these since; `all_`: all alarms of the
    journal."""
    named = set[str]().union(*(_named(one) for one in found))
    since: dict[int, list[Object]] = {}
    for example, decision in _decided(path, named):
        blamed = [one["seq"] for one in all_ if example in _named(one) and one["seq"] < decision["seq"]]
        if blamed:
            since.setdefault(blamed[-1], []).append(decision)
    return [
        one
        | {
            "culprits": [lines[each] for each in one["culprits"]],
            "suspects": [lines[each] for each in one["suspects"]],
            "story": sorted([*one["story"], *since.get(one["seq"], [])], key=lambda each: int(each["seq"])),
        }
        for one in found
    ]


def _named(one: Object) -> set[str]:
    return {*one["culprits"], *one["suspects"]}


def _decided(path: str, examples: set[str]) -> Iterator[tuple[str, Object]]:
    """Decisions about examples, oldest first."""
    if not examples:
        return
    chosen = f"kind IN {rows.among(_DECIDED)} AND key IN {rows.among(sorted(examples))}"
    sql = f"SELECT seq, at_ns, kind, key, coalesce(body ->> '$.by', '') FROM events WHERE {chosen} ORDER BY seq"
    for seq, at_ns, kind, key, by in stream(path, sql, rows.SECONDS):
        done = kind.removeprefix("example.") + (f" by {by}" if by else "")
        yield key, {"at": iso(at_ns), "seq": seq, "kind": kind, "text": f"example {key} was {done}"}


# --- for people ---------------------------------------------------------------------------------------------------

SHOWN = 5
"""Answers that are shown without --verbose."""
NAMED_MAX = 20
"""Examples, or steps, that are listed."""
COLUMNS: tuple[render.Column, ...] = (
    "incident", ("at", lambda one: one["at"][:19]), "step", ("back to", "to"),
    ("metrics", lambda one: ", ".join(one["metrics"])), ("steps undone", "taken_back"),
    ("verdict", lambda one: one["verdict"] or ""), ("did it", lambda one: len(one["culprits"])), "state",
    ("how", lambda one: how(one)),
)  # fmt: skip
_REPLAYS: tuple[render.Column, ...] = (
    ("replay", "number"), ("left out", "left_out"), ("of the rate", "lr_scale"), ("damage in margins", "damage"),
    ("outcome", lambda each: OUTCOMES.get(each["outcome"], "-")), "seconds",
)  # fmt: skip
_STATES = {
    "held": "held", "undone": "taken back", "pending": "waits to be learned", "trained": "learned since",
    "declined": "declined since", "edited": "edited since", "withdrawn": "withdrawn since",
}  # fmt: skip


def how(one: Object) -> str:
    """End of an alarm, or the event that it waits for."""
    if one["settled"] is not None:
        return str(one["settled"]["how"])
    if one["rolled_back"] is None and one["refused"]:
        return f"no way back: {one['refused']}; waits for `apollod ctl resume`"
    if one["waits_for"] == WAITS_FOR["weights"]:
        return "the last good weights are wanted back"
    return f"the last good weights are back; waits for {one['waits_for']}"


def page(one: Object, verbose: bool = False) -> list[str]:
    """Lines about an alarm, not made safe for a terminal yet. `verbose`: with each replay of the search, and every
    event."""
    back, resumed, settled, after = one["rolled_back"], one["resumed"], one["settled"], one["after"]
    done = f"not yet: {how(one)}" if settled is None else f"{settled['at']} by {settled['by']}: {settled['how']}"
    return [
        f"incident    {one['incident']}, {one['state']}",
        f"alarm       {one['at']} at step {one['step']} (event {one['seq']}); good at step {one['to']}",
        "worse",
        *(f"    {name}{_drop(one['drops'].get(name))}" for name in one["metrics"]),
        *_fallen(one["answers"], NAMED_MAX if verbose else SHOWN),
        *render.fields(
            ("taken back", _steps(one["undone"])),
            ("refused", one["refused"]),
            ("rolled back",
             back and f"{back['at']} to step {back['to']}, from {back['how']}, in {back['seconds']:.2f} s"),
        ),
        *_search(one, verbose),
        *_blamed(one),
        *render.fields(
            ("repeated", one["repeated"] > 0 and _repeated(one)),
            *(("told", _told(each)) for each in one["told"]),
            ("resumed", resumed and f"{resumed['at']} by {resumed['by']}"),
            ("settled", done),
            ("afterwards", after and _after(after)),
        ),
        *(["", *(f"{each['at']}  {each['seq']:>6}  {each['text']}" for each in one["story"])] if verbose else []),
    ]  # fmt: skip


def _drop(drop: Object | None) -> str:
    return "" if drop is None else f" by {drop['drop']:.4g} ({drop['low']:.4g} to {drop['high']:.4g})"


def _fallen(answers: Sequence[Object], most: int) -> list[str]:
    """Answers of probes that fell, before and at the alarm."""
    lines = [
        f"    {each['probe']}\n        before    {each['before'] or '-'}\n        at alarm  {each['at_alarm']}"
        for each in answers
    ]
    return render.first(lines, most, "    and {} more: --json has them")


def _steps(undone: Sequence[int]) -> str:
    if len(undone) <= NAMED_MAX:
        return ", ".join(map(str, undone)) or "no step"
    return f"{len(undone)} steps, {undone[0]} to {undone[-1]}"


def _search(one: Object, verbose: bool) -> list[str]:
    lines = list[str]()
    if one["replays_max"]:
        lines.append(
            f"search      {one['replays']} replays of at most {one['replays_max']}, over {one['window']} examples"
        )
    if verbose and one["searched"]:
        lines += render.indented(render.listed(_REPLAYS, one["searched"]))
    for each in one["failures"]:
        given_up = ", which ended the search" if each["gives_up"] else ""
        lines.append(f"    {each['at']} replay {each['number']} failed{given_up}: {each['reason']}")
    if (ranked := one["ranked"]) is not None:
        how_far = f"{len(ranked['scores'])} examples in {ranked['seconds']:.1f} s, by how far a step of each would move"
        lines.append(f"ranked      {how_far} the probes that fell")
    if one["verdict"] is not None:
        lines.append(f"verdict     {one['verdict']}: {verdict(one)}")
    return lines


def _blamed(one: Object) -> list[str]:
    """Examples that did it or may have; if none is named, those that were taken back."""
    lines = [
        *(["did it"] if one["culprits"] else []), *_examples(one["culprits"]),
        *(["may have"] if one["suspects"] else []), *_examples(one["suspects"], (one["ranked"] or {}).get("scores")),
    ]  # fmt: skip
    if one["verdict"] == "not_searched" and one["examples"]:
        lines += [
            "learned by the steps that were taken back; `apollod ctl relearn ID...` learns one again",
            *_examples(one["examples"]),
        ]
    return lines


def _examples(found: Sequence[Object], scores: Mapping[str, float] | None = None) -> list[str]:
    """Lines about examples. `scores`: of a ranking."""
    lines = []
    for each in found:
        state = _STATES.get(each["state"], each["state"] or "not in this journal")
        text = f", teaches: {each['text']}" if each["text"] else ""
        score = (scores or {}).get(each["example"])
        rank = "" if score is None else f", score {score:.3g}"
        lines.append(f"    {each['example']}  {_place(each)}\n        {state}{rank}{text}")
    return render.first(lines, NAMED_MAX, "    and {} more: --json has them")


def _place(example: Object) -> str:
    return "-" if example["path"] is None else f"{example['path']}:{example['line']}"


def _repeated(one: Object) -> str:
    first, last = one["repeats"][0], one["repeats"][-1]
    pairs = f"step {first['again_of']} as {first['step']}"
    if first is not last:
        pairs += f" to step {last['again_of']} as {last['step']}"
    return f"{render.counted(one['repeated'], 'innocent step')}: {pairs}"


def _told(each: Object) -> str:
    about = TOLD_OF[each["event"]]
    if each["ok"]:
        return f"{each['at']} [quality] on_alarm, of {about}"
    return f"{each['at']} nobody of {about}: {each['reason']}" + ("; given up" if each["gives_up"] else "")


def _after(after: Object) -> str:
    if after["outcome"] == "baseline":
        return f"{after['at']} step {after['step']} became the baseline"
    drops = ", ".join(f"{name} {drop:+.4f}" for name, drop in after["drops"].items())
    said = "the next alarm" if after["outcome"] == "alarm" else "no alarm"
    return f"{after['at']} step {after['step']} was measured: {said}" + (f" (drop: {drops})" if drops else "")


# --- the examples that an alarm blames ----------------------------------------------------------------------------

WORDS_MAX = 80
"""Characters of the text that an example teaches."""
UNKNOWN: Object = {"source": None, "path": None, "line": None, "state": None, "text": None}


def culprit_lines(path: str, examples: Collection[str]) -> dict[str, Object]:
    """Facts of examples by id: `example`, `source`, `path`, `line`, `state` (as in the view `examples`) and the first
    words that are learned of it, not made safe for a terminal. All null for one that the journal does not have."""
    found = {one: {"example": one, **UNKNOWN} for one in examples}
    if not found:
        return found
    known = rows.objects(
        path,
        "SELECT e.id AS example, e.source, coalesce(s.path, e.source) AS path, e.line, e.state, e.record AS text "
        "FROM examples AS e "
        "LEFT JOIN (SELECT source, path FROM sources GROUP BY source) AS s ON s.source = e.source "
        f"WHERE e.id IN {rows.among(found)}",
    )
    return found | {one["example"]: one | {"text": taught(one["text"])} for one in known}


def taught(record: str) -> str | None:
    """First words that are learned of a record, on one line; None for one that this apollod cannot read."""
    try:
        targets = [part.text for part in parts(json.loads(record)) if part.target]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    text = " ".join(" ".join(one[: 4 * WORDS_MAX] for one in targets).split())
    return text if len(text) <= WORDS_MAX else text[: WORDS_MAX - 3] + "..."


def held_by_guard(path: str, examples: Collection[str]) -> list[str]:
    """The examples that an alarm took back and that still wait for a decision, in the order of holding."""
    held = rows.tuples(
        path,
        "SELECT CAST(key AS TEXT) FROM events WHERE kind = 'example.held' "
        f"AND body ->> '$.by' = '{GUARD}' GROUP BY key ORDER BY max(seq)",
    )
    among = set(examples)
    own = [one for (one,) in held if one in among]
    states = culprit_lines(path, own)
    return [one for one in own if states[one]["state"] == "held"]
