"""The verbs of `apollod ctl`: one line each."""

import argparse

from apollod.cli import commands
from apollod.cli.commands import Command
from apollod.cli.control import ctl

_HERE = "apollod.cli.control"

VERBS = (
    Command("status", "what the daemon is doing", f"{_HERE}.status_verb"),
    Command("events", "facts from the journal, oldest first", f"{_HERE}.questions.events_verb"),
    Command(
        "query",
        "one read-only SQL statement on the journal (views: examples, steps, checkpoints, rollbacks, sources ...)",
        f"{_HERE}.questions.query_verb",
    ),
    Command(
        "replay",
        "what the daemon knew at a moment: the journal, folded up to an event, as `status` shows it",
        f"{_HERE}.questions.replay_verb",
    ),
    Command(
        "why",
        "from a step to what it learned from and what it made, or from an example to what became of it",
        f"{_HERE}.questions.why_verb",
    ),
    Command("journal", "the journal itself", f"{_HERE}.questions.journal_verb"),
    Command(
        "example",
        "the examples that were accepted: list, show, approve, decline, hold, edit, withdraw, forget",
        f"{_HERE}.questions.example_verb",
    ),
    Command("queue", "the examples that wait: show what is learned next, and why", f"{_HERE}.queue_verb"),
    Command(
        "review",
        "decide about held examples on a screen: each with what speaks for and against it, and a key to press",
        f"{_HERE}.review.review_verb",
    ),
    Command(
        "source", "the files that examples come from: list, show, test, add, remove", f"{_HERE}.questions.source_verb"
    ),
    Command(
        "judge",
        "who judges examples, how far it is trusted and where it was wrong: show; try it on planted cases: test",
        f"{_HERE}.judge_verb",
    ),
    Command(
        "pattern",
        "what is learned by dreaming, and how far it is: list, show, add, retire, propose",
        f"{_HERE}.dreams.pattern_verb",
    ),
    Command(
        "dream", "what was dreamt, and why: list, show; dream now, or not: start, stop", f"{_HERE}.dreams.dream_verb"
    ),
    Command(
        "quality",
        "has the model become worse? measure it: run, baseline; what is known: report, incident list, incident show",
        f"{_HERE}.quality.quality_verb",
    ),
    Command(
        "export",
        "examples as rows of TRL or OpenAI, or as ATIF trajectories, one a line",
        f"{_HERE}.questions.export_verb",
    ),
    Command(
        "bootstrap",
        "existing logs of agents, read and learned once, without the instructions that they followed",
        f"{_HERE}.bootstrap.bootstrap_verb",
    ),
    Command(
        "teach",
        "teach a fact, or the right answer to a question, until the model knows it in other words, too; waits for it",
        f"{_HERE}.lessons.teach_verb",
    ),
    Command(
        "lesson",
        "what was taught, and whether it is known: list, show; correct it, take it back, practise it: replace, forget, "
        "practise",
        f"{_HERE}.lessons.lesson_verb",
    ),
    Command("submit", "give lines of a JSONL file to the daemon, as if dropped into the inbox", f"{_HERE}.submit_verb"),
    Command(
        "train",
        "give one example to the daemon, as POST /train does; it is learned with the rate of direct corrections",
        f"{_HERE}.train_verb",
    ),
    Command(
        "feedback",
        "say that an answer of the engine was good or bad, and what it should have been",
        f"{_HERE}.feedback_verb",
    ),
    Command("schedule", "when examples are learned, and what comes next: show", f"{_HERE}.schedule_verb"),
    Command("checkpoint", "write weights and optimizer state to disk now", f"{_HERE}.checkpoint_verb"),
    Command(
        "rollback",
        "serve an earlier step's weights again, at once; what was learned since is taken back and stays away",
        f"{_HERE}.rollback_verb",
    ),
    Command(
        "relearn",
        "learn examples after all whose steps were taken back by a rollback, or that were withdrawn",
        f"{_HERE}.relearn_verb",
    ),
    Command("pause", "finish the running step, then start no other; serving goes on", f"{_HERE}.pause_verb"),
    Command("resume", "train again; also tries again what was given up", f"{_HERE}.resume_verb"),
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 no daemon answers, 4 not permitted, "
        "5 the quality guard raised an alarm"
    )
    ctl.common_options(parser, first=True)
    commands.add(parser, VERBS, dest="verb", described=True)
