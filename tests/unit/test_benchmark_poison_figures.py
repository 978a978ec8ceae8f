"""What `benchmarks.poison --strangers` reads out of a journal."""

import json
import sqlite3
from typing import Any

from benchmarks import poison_figures


class Journal:
    """Events as the journal has them; asked as a daemon is."""

    def __init__(self, *events: tuple[str, dict[str, Any]]) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, kind TEXT, body TEXT)")
        self._db.executemany(
            "INSERT INTO events (kind, body) VALUES (?, ?)", [(kind, json.dumps(body)) for kind, body in events]
        )

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()


def look(why: str, passed: float, share: float = 1.0) -> tuple[str, dict[str, Any]]:
    figures = {"towns.passed": {"a": 1.0, "b": passed}, "kl": {"a": 9.0}}
    return "quality.measured", {"why": why, "share": share, "seconds": 2.0, "figures": figures}


def step(number: int, example: str, fingerprint: str, applied: bool = True) -> tuple[str, dict[str, Any]]:
    body = {"step": number, "example": example, "applied": applied, "seconds": 1.0, "fingerprint": fingerprint}
    return "step.completed", body


def alarm(number: int, step_: int, held: list[str]) -> list[tuple[str, dict[str, Any]]]:
    named = {"incident": number, "verdict": "named", "culprits": held, "suspects": [], "reason": ""}
    return [
        ("quality.alarmed", {"incident": number, "step": step_, "to": 0, "metrics": ["towns.passed"]}),
        ("quality.named", named),
    ]


BOUND = ("trainer.bound", {"fingerprint": "untrained"})
SETTLED = ("quality.settled", {"incident": 1})
BEGUN = [BOUND, look("baseline", 1.0), look("baseline", 1.0)]
TAUGHT = [step(1, "good", "f1"), step(2, "bad", "f2"), step(3, "known", "f2", applied=False)]


def test_an_alarm_ends_in_the_weights_of_its_last_repeated_step() -> None:
    later = [look("asked", 1.0), step(5, "new", "f5")]
    life = Journal(*BEGUN, *TAUGHT, look("doubt", 0.0), *alarm(1, 3, ["bad"]), step(4, "good", "f4"), SETTLED, *later)
    (one,) = poison_figures.alarms(life, 0)
    assert (one.step, one.why, one.held, one.fingerprint) == (3, "doubt", ["bad"], "f4")
    assert poison_figures.alarms(life, 12) == []  # another kind's


def test_an_alarm_of_which_nothing_is_repeated_ends_in_the_weights_that_came_back() -> None:
    life = Journal(*BEGUN, *TAUGHT, look("asked", 0.0), *alarm(1, 3, ["bad", "good"]), SETTLED)
    assert poison_figures.alarms(life, 0)[0].fingerprint == "untrained"


def test_an_alarm_that_is_open_has_no_end() -> None:
    assert poison_figures.alarms(Journal(*BEGUN, *TAUGHT, look("asked", 0.0), *alarm(1, 3, [])), 0)[0].fingerprint == ""


def test_only_the_first_step_of_an_example_says_whether_it_wrote() -> None:
    life = Journal(*BEGUN, *TAUGHT, step(4, "known", "f4"))
    assert poison_figures.wrote(life, 0, {"bad"}) == {
        "good_wrote": 0.5, "poison_wrote": 1.0, "steps": 4, "step_s": 4.0, "refused": 0
    }  # fmt: skip


def test_how_far_it_fell_is_said_by_looks_at_all_probes() -> None:
    life = Journal(*BEGUN, *TAUGHT, look("window", 0.0, share=0.1), look("asked", 0.5), look("asked", 1.0))
    told = poison_figures.fell(life, 0)
    assert (told["passed_before"], told["passed_worst"], told["passed_after"]) == (
        {"all": 1.0, "towns": 1.0}, {"all": 0.75, "towns": 0.75}, {"all": 1.0, "towns": 1.0}
    )  # fmt: skip
    assert (told["looks"], told["look_s"]) == (3, 6.0)
