"""`apollod demo --dream`: behaviour moves from a system message into the weights of a served model.

The real daemon serves a small model that follows its instructions, and shows none of the behaviours without them.
Imagination and judge are scripted, and asked over HTTP like any model. The daemon dreams until every pattern is
settled. The result is measured from outside, on scenarios that were never dreamt; then the steps are run again from the
journal. The surroundings of a request are the defaults of [dream]: nothing, neutral messages, agents, a person's
records.
"""

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from apollod.demo import dream_report
from apollod.demo.dream_report import Seen, Story
from apollod.demo.stage import POLL_S, STOP_S, Line, Stage, Table, progress_of, say, wait
from apollod.demo.world import measuring
from apollod.demo.world.acting import Acting
from apollod.demo.world.exam import ANSWER_TOKENS, CASES, Case
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.measuring import Measured
from apollod.demo.world.standing_before import own_records
from apollod.errors import ApolloError
from apollod.testing.daemon import UP, Daemon, Status, config_of, free_port
from apollod.wire import control_messages as msg

MODEL = "apollo-demo"
LEARNING_RATE = 1e-4
ROOM = 2048
"""tokens of a request and its answer: the longest shipped surrounding has 1,300"""
LIMIT_S = 1800.0
"""time limit of all dreams together: unsettled patterns are then measured as they are"""
QUIET_S = 2.0
"""seconds without an event of dreams after which the last tests of settled patterns are over, too"""
REPLAY_S = 600.0
BEHAVIOURS: dict[str, Instruction] = {
    "ask": Instruction("ask"), "caps": Instruction("caps"), "end": Instruction("end", "Over"),
    "greet": Instruction("greet"), "json": Instruction("json"), "start": Instruction("start", "Ahoy"),
}  # fmt: skip
"""Behaviours to choose from, by name."""
SETTLE = (9, 10)
AROUND = 20
"""questions of each group in each kind of surroundings"""


class Dreamt(NamedTuple):
    """The result of dreaming."""

    story: Story
    steps: int
    fingerprint: str


def run(args: argparse.Namespace, table: Table) -> int:
    """Run the demo; 0 if every goal of `dream_report.goals` is met, 1 if not."""
    began = time.monotonic()
    patterns = [BEHAVIOURS[name] for name in args.behaviours]
    questions = measuring.asked(patterns, CASES, args.seed, AROUND)
    with Acting(args.seed) as acting, Stage(args.dir, "apollod-dream-") as stage:
        stage.daemon = daemon = prepared(stage.root, acting.url, patterns, args.seed, args.port)
        start(daemon)
        say(f"2/5 asking the served model {len(questions)} questions that no dream will hold")
        before = measured(daemon, questions)
        dreamt = _dream(daemon, patterns)
        say("4/5 asking again: same process, same memory, other weights")
        seen = Seen(before, measured(daemon, questions))
        daemon.end(STOP_S)
        say(f"5/5 running the {dreamt.steps} steps again from the journal, without the daemon")
        replayed = _replay(daemon) if dreamt.steps else ""
    goals = dream_report.goals(patterns, seen, replayed == dreamt.fingerprint)
    missed = [f"{name} is {goal['value']}, goal {goal['goal']}" for name, goal in goals.items() if not goal["met"]]
    tell = say if args.json else print
    tell(table(dream_report.COLUMNS, dream_report.rows(patterns, seen)))
    tell("\n" + table(["kept", "before", "after"], dream_report.kept(patterns, seen)) + "\n")
    result = {
        "schema_version": 1, "learned": not missed, "goals": goals, **dream_report.figures(patterns, seen),
        "dreams": dreamt.story.dreams, "practices": dreamt.story.practices, "phases": dreamt.story.phases,
        "steps": dreamt.steps, "fingerprint": dreamt.fingerprint, "fingerprint_replayed": replayed,
        "imagined": acting.imagined, "judged": acting.judged, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    for what in missed:
        say(f"apollod: missed: {what}")
    print(json.dumps(result))
    return 1 if missed else 0


# --- the daemon -------------------------------------------------------------------------------------------------------


def prepared(root: Path, acting: str, patterns: Sequence[Instruction], seed: int = 0, port: int = 0) -> Daemon:
    """The daemon with its model and configuration. `acting`: URL of imagination and judge."""
    with resources.as_file(resources.files("apollod") / "data" / "world-model") as model:
        shutil.copytree(model, root / "model", dirs_exist_ok=True)
    port = port or free_port()
    arguments = ["--max-model-len", str(ROOM), "--max-num-seqs", str(measuring.AT_ONCE)]
    config = config_of(
        root, root / "model", port,
        engine=f'served_name = "{MODEL}"\nargs = {json.dumps(arguments)}\n',
        trainer=f"lr = {LEARNING_RATE}\nwarmup_steps = 0\nmax_tokens = {ROOM}\nseed = {seed}\n",
        checkpoint="keep = 2\n",
        judge='endpoint = "scripted"\nvotes = 1\n',
        dream='endpoint = "scripted"\nmode = "always"\nshare_max = 1.0\n'
        f"answer_tokens = {ANSWER_TOKENS}\n",
    )  # fmt: skip
    config += f'[[endpoint]]\nname = "scripted"\nbase_url = "{acting}"\nmodel = "scripted"\n'
    return Daemon(root, config + "".join(map(_pattern, patterns)), port)


def _pattern(one: Instruction) -> str:
    """A pattern of the configuration. Its opposite is practised in eight wordings, alone and six of them after the
    instruction, and tested by the daemon in two others: every third text of `contrast` is reserved for that."""
    told, opposite = one.texts, one.opposite.texts
    contrast = [
        opposite[0], opposite[1], opposite[2],
        opposite[3], f"{told[1]} {opposite[5]}", opposite[6],
        opposite[8], opposite[9], f"{told[2]} {opposite[2]}",
        opposite[10], opposite[11], f"{told[0]} {opposite[6]}",
        opposite[5], f"{told[0]} {opposite[1]}", f"{told[1]} {opposite[2]}",
        f"{told[2]} {opposite[9]}", f"{told[0]} {opposite[8]}", f"{told[2]} {opposite[6]}",
        f"{told[1]} {opposite[3]}", f"{told[2]} {opposite[10]}",
    ]  # fmt: skip
    return "\n".join([
        "[[dream.pattern]]", f"name = {json.dumps(one.kind)}", f"instruction = {json.dumps(told[0])}",
        f"contrast = {json.dumps(contrast)}", f"settle = {list(SETTLE)}", "",
    ])  # fmt: skip


def start(daemon: Daemon) -> None:
    """Start the daemon and pause it: nothing must be learned before the measurement."""
    say("1/5 starting the daemon: vLLM and the trainer, one copy of the weights between them (about 30 s)")
    daemon.start()
    daemon.wait(lambda _: True, "that it answers", poll_s=POLL_S)
    daemon.request(msg.PauseRequest())
    wait(daemon, _is_up, daemon.ready_s, "ready")


def _is_up(status: Status) -> bool:
    return status["state"] in UP and status["engine"]["ready"] and status["trainer"]["ready"]


def _dream(daemon: Daemon, patterns: Sequence[Instruction]) -> Dreamt:
    """Dream until every pattern is settled or given up, or time is up; then pause."""
    say(f"3/5 dreaming of {', '.join(one.kind for one in patterns)}: each is told now, and need not be told afterwards")
    if daemon.status()["step"]:
        raise ApolloError("something was learned before it was measured", "this is a fault of the demo")
    daemon.drop("own.jsonl", *map(json.dumps, own_records()))
    daemon.request(msg.ResumeRequest())
    story, line, began = Story(), Line(), time.monotonic()
    heard, heard_at = 0, began

    def look(status: Status) -> None:
        nonlocal heard, heard_at
        if status:
            progress_of(status)  # raises for a daemon that cannot go on
        for seq, kind, body in _events(daemon, heard):
            heard, heard_at = seq, time.monotonic()
            if stays := story.hear(kind, json.loads(body)):
                line.clear()
                say(f"    {stays}")
        if story.line:
            line.show(f"    {story.line}")

    def over(status: Status) -> bool:
        now = time.monotonic()
        return (story.over and now - heard_at > QUIET_S) or now - began > LIMIT_S

    daemon.wait(over, "settled", LIMIT_S + 60.0, POLL_S, look)
    line.clear()
    daemon.request(msg.PauseRequest())
    status = wait(daemon, lambda s: not s["running"], daemon.learn_s, "paused")
    if not story.over:
        say(f"    not settled within {LIMIT_S:.0f} s: {', '.join(n for n, p in story.phases.items() if p == 'active')}")
    return Dreamt(story, status["step"], status["weights"]["fingerprint"])


def _events(daemon: Daemon, after: int) -> list[tuple[int, str, str]]:
    """Events of dreams and patterns after event `after`."""
    rows = daemon.query(
        f"SELECT seq, kind, body FROM events WHERE seq > {after} "
        "AND (kind LIKE 'dream%' OR kind LIKE 'pattern.%') ORDER BY seq"
    )
    return [(int(seq), str(kind), str(body)) for seq, kind, body in rows]


def _replay(daemon: Daemon) -> str:
    """The fingerprint computed by `apollod replay`; empty if a step gave other bits than before. Raises ApolloError
    without output."""
    done = subprocess.run(
        daemon.command("replay", "--json"), stdout=subprocess.PIPE, text=True, timeout=REPLAY_S, check=False
    )
    if not done.stdout.strip():
        raise ApolloError("the journal could not be replayed", "see the lines above")
    told = json.loads(done.stdout)
    return str(told["fingerprint"]) if told["verified"] else ""


# --- measurement ------------------------------------------------------------------------------------------------------


def measured(daemon: Daemon, questions: Sequence[Case]) -> Measured:
    """Ask the served model all questions, with progress."""
    config = json.loads((daemon.root / "model" / "generation_config.json").read_text(encoding="utf-8"))
    line = Line()

    def tell(done: int, of: int) -> None:
        if done % 100 == 0 or done == of:
            line.show(f"    {done} of {of} answered")

    found = measuring.measure(f"{daemon.url}/v1", MODEL, config["eos_token_id"], questions, tell)
    line.clear()
    return found
