"""`apollod ctl queue|schedule|pause|resume|checkpoint|rollback|relearn`: steer training and serving."""

import argparse
import re
import time
from functools import partial
from typing import Any

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.errors import ConfigError
from apollod.wire import control_messages as msg

_ACTIVITIES = ("step", "checkpoint")


# --- queue show: what is learned next -----------------------------------------------------------------------------

_QUEUE: tuple[render.Column, ...] = (
    ("", "number"), "example", "tier", "tokens", ("session or source", lambda n: n["session"] or n["source"]), "topic",
    "why",
)  # fmt: skip


def add_queue(parser: argparse.ArgumentParser) -> None:
    parser.description = "the examples that wait to be learned"
    limit = partial(commands.limited, text="the next N (default 20, at most 1000)")
    ctl.actions(parser, ("show", "what is learned next, and why; what the next step waits for",
                         ctl.telling(lambda args: msg.QueueRequest(args.limit or 1000), _queue), limit))  # fmt: skip


def _queue(a: dict[str, Any]) -> str:
    waiting, running, window = a["waiting"], a["running"], a["window"]
    kind = f"at most {100 * a['share_max']:g} % of one kind"
    lines = render.fields(
        ("waiting", f"{waiting['direct']} given directly, {waiting['bulk']} others; {a['not_tokenised']} of them are "
                    f"not tokenised yet; {a['held']} more are held for a decision"),
        ("running", running and f"step {running['step']}: {' '.join(running['examples'])}"),
        ("waits for", a["blocked"]),
        ("window", window and f"{window['number']}, {window['examples']} examples so far"),
        ("order", "the order in which they came" if a["share_max"] == 1.0 else kind),
        *((kind, _most(a["taken"][kind])) for kind in ("source", "session", "topic")),
    )  # fmt: skip
    return "\n".join([*lines, *(["", render.listed(_QUEUE, a["next"])] if a["next"] else [])])


def _most(groups: list[dict[str, Any]]) -> str:
    """The groups that most was taken of in this window."""
    named = ", ".join(f"{g['name']} {g['examples']}" for g in groups[:3])
    return f"taken: {named}" if named else ""


# --- schedule show: when it is learned ----------------------------------------------------------------------------


def add_schedule(parser: argparse.ArgumentParser) -> None:
    parser.description = "when what came from files and logs is learned: at any time, or at night"
    ctl.actions(parser, ("show", "what comes next, and why", _show_schedule))


def _show_schedule(args: argparse.Namespace) -> int:
    status = ask_status(ctl.socket_path(args))
    waits = {name: status.get("activities", {}).get(name, "") for name in _ACTIVITIES}
    answer = {
        "schedule": status.get("schedule", {}), "pending": status["queue"]["pending"],
        "waits": waits, "checkpoint_due_in_s": status["checkpoint"].get("due_in_s"),
        "dreams": status.get("dreams", {}),
    }  # fmt: skip
    return render.show(args, answer, lambda: schedule_lines(answer))


def schedule_lines(answer: dict[str, Any]) -> list[str]:
    """Lines about hours, next step, next checkpoint and dreams."""
    due, pending, waits = answer["checkpoint_due_in_s"], answer["pending"], answer["waits"]
    begins = f"{pending} examples wait" + (f": {waits['step']}" if waits["step"] else "; the next step begins at once")
    held_up = f" ({waits['checkpoint']})" if waits["checkpoint"] else ""
    return render.fields(
        ("hours", _hours(answer["schedule"])),
        ("next step", begins if pending else "nothing waits to be learned"),
        ("checkpoint", "nothing is unsaved" if due is None else (f"in {due:.0f} s" if due else "now") + held_up),
        *_dreams(answer["dreams"], answer["schedule"]),
    )


def _dreams(dreams: dict[str, Any], schedule: dict[str, Any]) -> list[tuple[str, str]]:
    """Mode of dreams, and the next one."""
    if not render.has_patterns(dreams):
        return [("dreams", "none: there is no pattern; `apollod ctl pattern add` or [[dream.pattern]] adds one")]
    when = {"idle": "while nobody else uses the engine", "always": "beside users", "off": "on request"}
    at_night = " at night" if schedule.get("dream") == "night" and dreams["mode"] != "off" else ""
    return [
        ("dreams", when.get(dreams["mode"], dreams["mode"]) + at_night),
        ("next dream", dreams["next"] or "nothing is left to do"),
        ("waits for", dreams["reason"] if dreams["next"] else ""),
    ]


def _hours(schedule: dict[str, Any]) -> str:
    if not schedule.get("nightly"):
        return "any: examples are learned as they come; [schedule] nightly would have them wait for the night"
    hours = f"{schedule['nightly']} {schedule['zone'] or 'local time'}"
    if schedule["open"]:
        now = "missed, and caught up now" if schedule.get("late") else "now"
        return f"{hours}: {now}, until {_when(schedule['closes_at'])}; {schedule['steps']} steps so far"
    return f"{hours}: next on {_when(schedule['opens_at'])}; what is given directly does not wait"


def _when(moment: float | None) -> str:
    return "?" if moment is None else time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(moment))


# --- pause, resume, checkpoint, rollback, relearn -----------------------------------------------------------------


def add_pause(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, ctl.telling(lambda args: msg.PauseRequest(), _paused))


def _paused(answer: dict[str, Any]) -> str:
    now = ctl.read_status(answer)
    return f"paused; step {now.running.step} is finished first" if now.running else now.state


def add_resume(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, ctl.telling(lambda args: msg.ResumeRequest(), lambda answer: ctl.read_status(answer).state))


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Its answer comes when the checkpoint is committed."""
    ctl.options(parser, ctl.telling(lambda args: msg.CheckpointRequest(), _written, ctl.CHECKPOINT_TIMEOUT_S))


def _written(done: dict[str, Any]) -> str:
    return f"step {done['step']} {done['fingerprint']} {done['model_dir']}"


def add_rollback(parser: argparse.ArgumentParser) -> None:
    """Its answer comes when the weights of that step are served."""
    asked = ctl.telling(lambda args: msg.RollbackRequest(_step_of(args.to)), _back, ctl.CHECKPOINT_TIMEOUT_S)
    ctl.options(parser, asked)
    parser.add_argument(
        "--to", required=True, metavar="STEP|CHECKPOINT",
        help="a step on the way to the one that is served, 0 for the untrained weights, or a checkpoint's directory",
    )  # fmt: skip


def _back(done: dict[str, Any]) -> str:
    restored = f"restored from a checkpoint, {done['replayed']} steps run again"
    how = "undone in memory" if done["how"] == "memory" else restored
    return (
        f"step {done['step']} {done['fingerprint']} is served: {len(done['undone'])} steps {how} in "
        f"{done['seconds']:.2f} s\n"
        f"{len(done['examples'])} examples are taken back and not learned again; `apollod ctl relearn ID...` asks "
        "for them"
    )


def _step_of(text: str) -> int:
    """A step, or the step of a checkpoint that is named by its directory (the last part is enough)."""
    found = re.fullmatch(r"(?:.*/)?(?:step-)?([0-9]{1,19})(?:-[0-9]+)?/?", text)
    if found is None or int(found[1]) > commands.COUNT_MAX:
        raise ConfigError(
            f"{text!r} is neither a step nor a checkpoint",
            "give a number, or a path such as .../checkpoints/step-00000012",
        )
    return int(found[1])


def add_relearn(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, ctl.telling(lambda args: msg.RelearnRequest(args.examples), _again))
    parser.add_argument(
        "examples", nargs="+", metavar="EXAMPLE", help="ids; `ctl example list --state undone|withdrawn` has them"
    )


def _again(answer: dict[str, Any]) -> str:
    return f"{len(answer['examples'])} examples wait to be learned again"
