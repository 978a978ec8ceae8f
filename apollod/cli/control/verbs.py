"""The verbs of `apollod ctl`: one line each."""

import argparse

from apollod.cli import commands
from apollod.cli.commands import Command
from apollod.cli.control import ctl


def _verb(name: str, module: str, text: str, add: str = "add") -> Command:
    return Command(name, text, f"apollod.cli.control.{module}", add)


VERBS = (
    _verb("status", "status_verb", "what the daemon is doing"),
    _verb("events", "journal", "facts from the journal, oldest first", "add_events"),
    _verb("query", "journal",
          "one read-only SQL statement on the journal (views: examples, steps, checkpoints, rollbacks, sources ...)",
          "add_query"),
    _verb("replay", "journal",
          "what the daemon knew at a moment: the journal, folded up to an event, as `status` shows it", "add_replay"),
    _verb("why", "examples.example",
          "from a step to what it learned from and what it made, or from an example to what became of it", "add_why"),
    _verb("journal", "journal", "the journal itself"),
    _verb("example", "examples.example",
          "the examples that were accepted: list, show, approve, decline, hold, edit, withdraw, forget"),
    _verb("queue", "training", "the examples that wait: show what is learned next, and why", "add_queue"),
    _verb("review", "examples.review",
          "decide about held examples on a screen: each with what speaks for and against it, and a key to press"),
    _verb("source", "source", "the files that examples come from: list, show, test, add, remove"),
    _verb("judge", "judge_verb",
          "who judges examples, how far it is trusted and where it was wrong: show; try it on planted cases: test"),
    _verb("pattern", "pattern", "what is learned by dreaming, and how far it is: list, show, add, retire, propose"),
    _verb("environment", "environment",
          "what gives prompts and scores answers, and how learning from that goes: list, show, pause, resume"),
    _verb("lease", "lease", "outside trainers that update the weights: list, show; end such an update: revoke"),
    _verb("dream", "dream", "what was dreamt, and why: list, show; dream now, or not: start, stop"),
    _verb("quality", "quality.quality_verb",
          "has the model become worse? measure it: run, baseline; what is known: report, incident list, incident "
          "show"),
    _verb("export", "examples.example", "examples as rows of TRL or OpenAI, or as ATIF trajectories, one a line",
          "add_export"),
    _verb("bootstrap", "bootstrap",
          "existing logs of agents, read and learned once, without the instructions that they followed"),
    _verb("teach", "teach",
          "teach a fact, or the right answer to a question, until the model knows it in other words, too; waits "
          "for it"),
    _verb("lesson", "lesson",
          "what was taught, and whether it is known: list, show; correct it, take it back, practise it: replace, "
          "forget, practise"),
    _verb("submit", "submit", "give lines of a JSONL file to the daemon, as if dropped into the inbox"),
    _verb("train", "submit",
          "give one example to the daemon, as POST /train does; it is learned with the rate of direct corrections",
          "add_train"),
    _verb("feedback", "submit",
          "say that an answer of the engine was good or bad, and what it should have been",
          "add_feedback"),
    _verb("schedule", "training", "when examples are learned, and what comes next: show", "add_schedule"),
    _verb("checkpoint", "training", "write weights and optimizer state to disk now", "add_checkpoint"),
    _verb("rollback", "training",
          "serve an earlier step's weights again, at once; what was learned since is taken back and stays away",
          "add_rollback"),
    _verb("relearn", "training",
          "learn examples after all whose steps were taken back by a rollback, or that were withdrawn",
          "add_relearn"),
    _verb("pause", "training", "finish the running step, then start no other; serving goes on", "add_pause"),
    _verb("resume", "training", "train again; also tries again what was given up", "add_resume"),
)  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 no daemon answers, 4 not permitted, "
        "5 the quality guard raised an alarm"
    )
    ctl.common_options(parser, first=True)
    commands.add(parser, VERBS, dest="verb", described=True)
