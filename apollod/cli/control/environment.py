"""`apollod ctl environment list|show|pause|resume`: what the model learns from rewards."""

import argparse
import json
from typing import Any

from apollod.adapters.journal import journal_reader
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.cli.render import indented
from apollod.errors import unknown
from apollod.wire import control_messages as msg

EPILOG = """\
An environment gives prompts and scores answers to them: [[environment]] of the configuration names one. The served
model answers each prompt several times, and learns from the better answers. docs/rewards.md has more.

examples:
  apollod ctl environment list
  apollod ctl environment show sums
  apollod ctl environment pause sums --reason 'its scores are wrong'
  apollod ctl environment resume sums
"""
SHOWN_GROUPS = 10
QUOTED_MAX = 60
Object = dict[str, Any]


def _figure(name: str, digits: int = 2) -> render.Column:
    return (name, lambda one: "" if one[name] is None else f"{one[name]:.{digits}f}")


_COLUMNS: tuple[render.Column, ...] = (
    ("environment", "name"), "state", "prompt", "waiting", "learned", "flat", "failed", "outdated", _figure("reward"),
    _figure("spread"), _figure("ratio"), _figure("clipped"), _figure("kl", 3), _figure("entropy"),
    _figure("age", 1), ("why", "reason"),
)  # fmt: skip
_GROUPS: tuple[render.Column, ...] = (
    "number", "at", ("answers", "count"), _figure("reward"), ("best", lambda one: f"{one['best']:g}"), "tokens", "step",
    ("what was asked, and the first answer", lambda one: _said(one)),
)  # fmt: skip


def _said(one: Object) -> str:
    """Prompt and first answer of a group; why nothing is learned from it."""
    answers = json.loads(one["answers"] or "[]")
    text = f"{render.cut(one['asked'], QUOTED_MAX)} -> {render.cut(answers[0], QUOTED_MAX)}" if answers else ""
    return " | ".join(filter(None, (one["reason"], text)))


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "sources of prompts that score the model's answers, from which it learns"
    commands.epilog(parser, EPILOG)
    name = ctl.argument("name", metavar="NAME", help="of the environment")
    ctl.actions(
        parser,
        ("list", "every environment, what it gave and how its steps go", _list, ctl.of_a_copy),
        ("show", "one environment in full, with its last groups", _show, name, ctl.of_a_copy),
        ("pause", "sample no more groups, and learn none that wait",
         ctl.telling(lambda args: msg.EnvironmentRequest(args.name, "pause", ctl.by(), args.reason), _paused), name,
         ctl.argument("--reason", default="", help="kept in the journal")),
        ("resume", "sample groups again",
         ctl.telling(lambda args: msg.EnvironmentRequest(args.name, "resume", ctl.by()), _resumed), name),
    )  # fmt: skip


def _environments(args: argparse.Namespace) -> list[Object]:
    answer = ctl.ask_or_fold(args, msg.StatusRequest(), rows.folded_status)
    found: list[Object] = answer.get("environments", [])
    return found


def _list(args: argparse.Namespace) -> int:
    found = _environments(args)
    none = "there is no environment; [[environment]] in the configuration names one (docs/rewards.md)"
    return render.show(args, {"environments": found}, lambda: render.listed(_COLUMNS, found) if found else none)


def _show(args: argparse.Namespace) -> int:
    found = {one["name"]: one for one in _environments(args)}
    if (one := found.get(args.name)) is None:
        raise unknown("environment", args.name, found)
    sql = f"""
        SELECT number, at, json_array_length(scores) AS count, answers, scores, reward, best, tokens, step, reason,
               coalesce(asked, '') AS asked, example
        FROM groups WHERE environment = {journal_reader.literal(args.name)} ORDER BY number DESC LIMIT {SHOWN_GROUPS}
    """
    groups = rows.objects(ctl.journal_path(args), sql)
    return render.show(args, {"environment": one, "groups": groups}, lambda: _page(one, groups))


def _page(one: Object, groups: list[Object]) -> str:
    fields = [
        ("state", one["state"] + (f": {one['reason']}" if one["reason"] else "")),
        ("groups", f"{one['learned']} learned, {one['waiting']} wait, {one['flat']} teach nothing, "
                   f"{one['outdated']} were too old or could not be learned"),
        ("prompts", f"all up to {one['prompt']} are done, {one['failed']} were given up"),
    ]  # fmt: skip
    if one["reward"] is not None:
        said = [f"{name} {one[name]:.3g}" for name in ("ratio", "clipped", "kl", "entropy") if one[name] is not None]
        fields += [
            ("reward", f"{one['reward']:.3f} in the mean of the last steps, spread {one['spread']:.3f}"),
            ("steps", f"{', '.join(said)}; {one['length']:.0f} tokens an answer, sampled {one['age']:.1f} steps before"
                      + (f"; {one['unhealthy']} in a row are not healthy" if one["unhealthy"] else "")),
        ]  # fmt: skip
    lines = [one["name"], *indented("\n".join(render.fields(*fields)))]
    return "\n".join([*lines, *(["", render.listed(_GROUPS, groups)] if groups else [])])


def _paused(answer: Object) -> str:
    taken = f"; {answer['withdrawn']} groups that waited are not learned" if answer["withdrawn"] else ""
    return f"{answer['environment']} {'was paused already' if answer['already'] else 'is paused'}{taken}"


def _resumed(answer: Object) -> str:
    return f"{answer['environment']} {'was not paused' if answer['already'] else 'goes on'}"
