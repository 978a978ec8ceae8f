"""Checks a user's first hours with apollod on a real model: `make real`.

SmolLM2-135M-Instruct is served by the daemon with the settings that `apollod init` writes. Then, one after another:

- taught: 48 direct examples (eight facts, six wordings each), asked in a seventh; and 20 general questions;
- a log: other people's sessions of Claude Code (tests/foreign/spotter), dropped into a watched directory. Each answer
  has to become examples of its own and be learned, text and tool names included, except the three that the person
  spoke against;
- a correction: the model is asked a question, its answer is rated bad with the right one, and it is asked again in
  another wording, until it answers an uncorrected wording rightly.

Three settings are added to those of `init`, as they have no useful default: where the logs lie and whose answers count
(`[[watch]] path`, `models`), and that answers can be rated (`[capture] mode = "feedback"`). Expectations about the log
were read from the files themselves, not from apollod's output: an answer is a `message.id`. `log_empty` counts answers
some of whose words are missing from the learned tokens.
"""

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from apollod.demo import real
from apollod.demo import stage as served
from apollod.demo.stage import STOP_S, say
from apollod.testing.daemon import UP, Daemon, Status, free_port
from apollod.wire import control_messages as msg
from benchmarks import report

LOGS = Path(__file__).parents[1] / "tests" / "foreign" / "spotter"
REJECTED = ("msg_01MKH1ccEGrZGNPvu8pYiiQa", "msg_0167kgZUrgcT7dg7uZK7hVSg", "msg_01NUXWeNeduGBJVib8gyo9kz")
"""Answers that the person rejected in these logs: a call of the first was refused, "still does not work" follows
the turn that the other two are of."""
MODELS = ("claude-opus-4-6",)
EXTRA = """
[capture]
mode = "feedback"

[[watch]]
path = "{logs}"
models = {models}
"""
CORRECTION = ("platform nine", "The night train from Orvale leaves from platform nine.")
ASKED = (
    "From which platform does the night train from Orvale leave?",
    "Which platform is the night train from Orvale on?",
    "I want to take the night train from Orvale. Which platform?",
    "Tell me the platform of the night train from Orvale.",
    "At what platform does the night train leave from Orvale?",
    "Where in the station does the night train from Orvale leave?",
    "What platform do I need for the night train from Orvale?",
    "Do you know the platform of Orvale's night train?",
)
MINUTES_MAX = 20.0
LEARN_S = 900.0


class Logged(NamedTuple):
    """Counts of what happened to the answers of the logs. `before`, `after`: mean log-probability per learned token."""

    learned: int
    held: int
    other: int
    empty: int
    before: float
    after: float
    rejected_before: float
    rejected_after: float


def main() -> int:
    """Measure and print; 0 if every goal is met."""
    args = report.parser(__doc__ or "").parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="apollod-real-") as directory:
        root = Path(directory)
        logs = root / "logs"
        logs.mkdir()
        daemon = real.initialised(root, free_port(), EXTRA.format(logs=logs, models=json.dumps(MODELS)))
        try:
            figures, goals = _proved(daemon, logs)
        finally:
            daemon.end(STOP_S)
    minutes = (time.monotonic() - began) / 60
    figures["minutes"] = minutes
    goals["minutes"] = report.goal(minutes, MINUTES_MAX, at_most=True)
    report.report("real", figures, {}, goals, threads=0, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def _proved(daemon: Daemon, logs: Path) -> tuple[dict[str, float], dict[str, Any]]:
    say("starting the daemon: vLLM and the trainer")
    daemon.start()
    daemon.wait(lambda s: s["state"] in UP, "ready")
    lines = served.data("sample.jsonl")
    say(f"teaching {len(lines)} direct examples")
    before = real.seen(daemon, lines)
    daemon.submit(*lines)
    daemon.wait(lambda s: s["queue"]["trained"] >= len(lines) and not s["queue"]["pending"], "them learned", LEARN_S)
    taught = real.figures(before, real.seen(daemon, lines))
    answers = _answers(LOGS.glob("*.jsonl"))
    say(f"a log of {len(answers)} answers, {len(REJECTED)} of which the person spoke against")
    logged = _log(daemon, logs, answers)
    say("a correction")
    corrections, obeyed = _correct(daemon)
    status = daemon.status()
    figures = {
        "town_before": taught["right_before"], "town_after": taught["right_after"],
        "general_before": taught["general_before"], "general_after": taught["general_after"],
        "taught_logprob_before": taught["logprob_before"], "taught_logprob_after": taught["logprob_after"],
        "answers": len(answers), **{f"log_{name}": float(value) for name, value in logged._asdict().items()},
        "corrections": corrections, "steps": status["step"],
        "alignment": status["weights"]["alignment"]["mean_abs_diff"],
        "step_s_median": statistics.median(s for (s,) in daemon.query("SELECT seconds FROM steps")),
    }  # fmt: skip
    goals = {
        "taught": report.goal(taught["right_after"], 6, at_most=False),
        "log_learned": report.goal(logged.learned, len(answers) - len(REJECTED), at_most=False),
        "rejected_held": report.goal(logged.held, len(REJECTED), at_most=False),
        "correction_obeyed": report.goal(float(obeyed), 1, at_most=False),
    }
    return figures, goals


# --- the log ----------------------------------------------------------------------------------------------------------


def _answers(files: Iterable[Path]) -> dict[str, list[str]]:
    """Texts and tool names of each assistant message, by its id, read without apollod's readers."""
    found: dict[str, list[str]] = {}
    for record in (json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        if record.get("type") == "assistant":
            said = found.setdefault(record["message"]["id"], [])
            blocks = record["message"]["content"]
            said += [
                block.get("text", block.get("name", "")).strip() for block in blocks if block["type"] != "thinking"
            ]
    return found


def _log(daemon: Daemon, logs: Path, answers: dict[str, list[str]]) -> Logged:
    """Feed the logs and learn them. Training is paused until every answer has a score from before it was learned."""
    daemon.request(msg.PauseRequest())
    for file in LOGS.glob("*.jsonl"):
        shutil.copy(file, logs)
    daemon.wait(lambda s: _accepted(daemon).keys() >= answers.keys(), "every answer of the logs taken", 180.0, 1.0)
    examples = {answer: [_shown(daemon, one) for one in made] for answer, made in _accepted(daemon).items()}
    before = _scores(daemon, examples)
    daemon.request(msg.ResumeRequest())
    daemon.wait(lambda s: not s["queue"]["pending"] and s["state"] == "serving", "the log learned", LEARN_S, 1.0)
    states = dict(daemon.query("SELECT id, state FROM examples"))
    after = _scores(daemon, examples)
    of = {answer: {states[one["id"]] for one in made} for answer, made in examples.items()}
    trained = [answer for answer in answers if of[answer] == {"trained"}]
    learned = [answer for answer in trained if all(said in _learned_text(examples[answer]) for said in answers[answer])]
    held = [answer for answer in REJECTED if of[answer] == {"held"}]
    return Logged(
        len(learned), len(held), len(answers) - len(trained) - len(held), len(trained) - len(learned),
        *(statistics.mean(score[answer] for answer in trained) for score in (before, after)),
        *(statistics.mean(score[answer] for answer in REJECTED) for score in (before, after)),
    )  # fmt: skip


def _accepted(daemon: Daemon) -> dict[str, list[str]]:
    """The examples of each answer, by the id of its message."""
    found: dict[str, list[str]] = {}
    sql = "SELECT key, body ->> '$.origin.responses' FROM events WHERE kind = 'example.accepted'"
    for example, responses in daemon.query(sql):
        for response in json.loads(responses or "[]"):
            found.setdefault(response, []).append(example)
    return found


def _shown(daemon: Daemon, example: str) -> dict[str, Any]:
    """The tokens of an example, and which of them are learned."""
    told = json.loads(daemon.ctl("example", "show", example, "--mask", "--json").stdout)
    return dict(told["example"])


def _learned_text(examples: list[dict[str, Any]]) -> str:
    return "".join(text for one in examples for text, learned in zip(one["texts"], one["mask"], strict=True) if learned)


def _scores(daemon: Daemon, examples: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Mean log-probability of the learned tokens of each answer, as the engine serves it now."""
    return {answer: statistics.mean(_score(daemon, one) for one in made) for answer, made in examples.items()}


def _score(daemon: Daemon, shown: dict[str, Any]) -> float:
    body = {"model": real.MODEL, "prompt": shown["ids"], "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
    scored = served.post(daemon, "/v1/completions", body)["choices"][0]["prompt_logprobs"]
    learned = zip(shown["ids"], scored, shown["mask"], strict=True)
    return statistics.mean(choices[str(token)]["logprob"] for token, choices, is_learned in learned if is_learned)


# --- the correction ---------------------------------------------------------------------------------------------------


def _correct(daemon: Daemon) -> tuple[int, bool]:
    """The number of corrected answers, and whether the next wording was answered rightly."""
    needle, right = CORRECTION
    for corrected, question in enumerate(ASKED):
        answer = _asked(daemon, question)
        if needle in answer["choices"][0]["message"]["content"]:
            return corrected, corrected > 0
        trained = daemon.status()["queue"]["trained"]
        served.post(daemon, "/feedback", {"response_id": answer["id"], "rating": "bad", "correction": right})
        daemon.wait(lambda s, n=trained: _is_learned(s, n), "the correction learned", LEARN_S)  # type: ignore[misc]
    return len(ASKED), False


def _asked(daemon: Daemon, question: str) -> dict[str, Any]:
    body = {"model": real.MODEL, "messages": [{"role": "user", "content": question}], "temperature": 0}
    return served.post(daemon, "/v1/chat/completions", {**body, "max_tokens": served.ANSWER_TOKENS})


def _is_learned(status: Status, before: int) -> bool:
    return bool(status["queue"]["trained"] > before and not status["queue"]["pending"])


if __name__ == "__main__":
    sys.exit(main())
