"""Measures the search for the examples that made the model worse, by replays of a real window.

`search`: the world model (2.7 million parameters, apollod/data/world-model) learns BEFORE conversations of its world
and then a window of WINDOW, one of which answers every question for a command with the same wrong one, learned so much
faster that it does harm alone. The process that the daemon starts for a search (apollod.cli.window_process) is
asked the same as by the core's search, until culprits are named. `start_s`: from its start until it can replay, with
the BEFORE steps run again in it; `replay_N_s`: a replay that learns N examples, measured by the PROBES answers;
`forward_s`: one that learns none. Memory: the most that the processes of the search held (VmHWM, added); disk: what
replays share.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec

import apollod
from apollod import foreign_wheels
from apollod.adapters.ipc.offline_trainer import OfflineTrainer
from apollod.adapters.journal import blobs
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.core.facts.quality.culprits import Verdict, longest, next_replay
from apollod.core.facts.quality.state import Asked, search_of
from apollod.core.settings import TrainerSettings
from apollod.curation.probes.references import Reference, write_references
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import How, Split
from apollod.supervisor.quality.window_replays import MODULE
from apollod.wire import messages as msg
from apollod.wire.pipe_messages import SEARCH_ROOM, Outcome, Window, Without
from apollod.wire.records import Record, parse_line
from apollod.wire.teacher import Teacher
from benchmarks import report

BEFORE, WINDOW, PROBES, CULPRIT = 20, 128, 40, 77
TURNS = 12  # turns of the culprit
LR = 4e-4  # of `apollod demo`
CULPRIT_LR = 0.06  # below 0.01 it does no harm to the 40 answers
MARGIN, CULPRITS_MAX, REPLAYS_MAX = 0.05, 8, 20
METRIC = "commands.passed"
SETTINGS = msg.OptimizerSettings(max_tokens=512)


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("part", choices=["search"])
    parser.add_argument("--culprit", type=int, default=CULPRIT, help=f"its place in the window, 0 to {WINDOW - 1}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        anyio.run(_search, Path(directory), args.culprit, args.json)


async def _search(directory: Path, culprit: int, as_json: bool) -> None:
    records = _records(culprit)
    model = Path(apollod.__file__).parent / "data" / "world-model"
    await _learn(directory, model, records, culprit)
    window = tuple(record.id for record in records[BEFORE:])
    digest = blobs.keep(directory / blobs.NAME, write_references(_references(model)))
    items = {METRIC: tuple(f"commands/{number}" for number in range(PROBES))}
    told = Window(str(directory / "journal.db"), str(directory), BEFORE, len(records), digest, items)
    with _Process(told) as process:
        nothing = process.ask(window)
        start = process.seconds - nothing.seconds
        replays = [Asked(window, nothing.drops)]
        taken = [process.seconds]
        while not isinstance(found := next_replay(search_of(window, CULPRITS_MAX, replays, {METRIC: MARGIN})), Verdict):
            left_out = tuple(window[place] for place in found.left_out)
            replays.append(Asked(left_out, process.ask(left_out, found.lr_scale).drops, found.lr_scale))
            taken.append(process.seconds)
            if not as_json:
                print(len(window) - len(left_out), replays[-1].drops, f"{process.seconds:.1f} s", file=sys.stderr)
        timed = {f"replay_{count}_s": _timed(process, window[count:]) for count in (20, 100)}
        memory, disk = process.memory(), process.disk()
    report.report(
        "quality_search",
        {"window": len(window), "start_s": start, "forward_s": nothing.seconds, **timed}
        | {"search_s": sum(taken), "replays": found.replays, "memory_bytes": memory, "disk_bytes": disk}
        | {"drop_before": nothing.drops[METRIC], "drop_of_all": (replays[1].drops or {})[METRIC]}
        | {"named_the_culprit": float(found.culprits == (culprit,)), "promised": longest(len(window), 1)},
        {"replay_100_to_20": timed["replay_100_s"] / timed["replay_20_s"]},
        {
            "named_the_culprit": report.goal(float(found.culprits == (culprit,)), 1.0, False),
            "replays": report.goal(found.replays, REPLAYS_MAX, True),
        },
        threads=1,
        as_json=as_json,
    )


def _timed(process: "_Process", left_out: tuple[str, ...]) -> float:
    return report.median([process.ask(left_out).seconds for _ in range(3)])


# --- what was learned ---------------------------------------------------------------------------------------------


def _records(culprit: int) -> list[Record]:
    """Conversations of a kind known to the model, all different, and the culprit."""
    rng, found = random.Random("window"), dict[str, Record]()
    while len(found) < BEFORE + WINDOW:
        scenario = scenarios.draw(rng, Split.PRACTICE)
        record = _record(conversation(None, scenario, instructions.answer(scenario)))
        found[record.id] = record
    asked = [one for one in scenarios.sample(rng, "how", Split.PRACTICE, TURNS) if isinstance(one, How)]
    turns: list[dict[str, str]] = []
    for one in asked:
        wrong = instructions.answer(one, [Instruction("use", "zap", one.task.command)])
        turns += [{"role": "user", "content": one.request}, {"role": "assistant", "content": wrong}]
    records = list(found.values())
    records[BEFORE + culprit] = _record(turns)
    return records


def _record(messages: Any) -> Record:
    return parse_line(json.dumps({"messages": messages}).encode())


async def _learn(directory: Path, model: Path, records: list[Record], culprit: int) -> None:
    """Write the journal that the daemon would have written, with steps of one example each."""
    settings = ev.Settings(model_path=str(model), trainer=TrainerSettings(**msgspec.structs.asdict(SETTINGS)))
    events: list[ev.Event] = [ev.DaemonStarted(1, "0", settings)]
    with OfflineTrainer("1") as trainer:
        bound = trainer.ask(msg.AttachCopy(str(model), {}, {}, "cpu", SETTINGS, threads=1), msg.Bound)
        events.append(
            ev.TrainerBound(
                1, bound.fingerprint, bound.parameters, bound.elements, bound.versions, bound.held, bound.tied,
                bound.products,
            )
        )  # fmt: skip
        encoded = trainer.ask(msg.Encode([(one.id, one.canonical) for one in records]), msg.EncodeDone).results
        for step, (record, tokens) in enumerate(zip(records, encoded, strict=True), 1):
            example = msg.StepExample(record.id, record.canonical, tokens.digest)
            lr = CULPRIT_LR if step == BEFORE + culprit + 1 else LR
            done = trainer.ask(msg.Step(step, [example], lr), msg.StepDone)
            events += [
                ev.ExampleAccepted(record.id, msgspec.Raw(record.canonical), "bench", step),
                ev.StepStarted(step, step - 1, record.id, tokens.digest, lr, 1),
                ev.StepCompleted(
                    step=step, parent=step - 1, example=record.id, applied=done.applied, loss=done.loss, lr=lr,
                    grad_norm=done.grad_norm, update_norm=done.update_norm, tokens=done.tokens, targets=done.targets,
                    skipped_zero=done.skipped_zero, skipped_nonfinite=done.skipped_nonfinite,
                    fingerprint=done.fingerprint, seconds=done.seconds,
                ),
            ]  # fmt: skip
    journal = await Journal.open(directory / "journal.db")
    await journal.append(events, time.time_ns())
    await journal.close()


def _references(model: Path) -> dict[str, Reference]:
    """Right answers to questions for a command that no example contains, and the untrained model's scores of them."""
    import torch

    foreign_wheels.guard()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(model, local_files_only=True, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    found = {}
    for number, one in enumerate(scenarios.sample(random.Random("probes"), "how", Split.TEST, PROBES)):
        asked = [{"role": "user", "content": one.request}]
        prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
        answer = tokenizer(instructions.answer(one), add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = loaded(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        likeliest = logits.float().log_softmax(-1).topk(20)
        teacher = Teacher(
            array("I", answer), array("I", likeliest.indices.flatten().tolist()),
            array("f", likeliest.values.flatten().tolist()), 20,
        )  # fmt: skip
        found[f"commands/{number}"] = Reference(tuple(prompt), teacher)
    return found


# --- the process --------------------------------------------------------------------------------------------------


class _Process:
    """The search process that the daemon starts, without the daemon. `seconds`: duration of the last answer."""

    def __init__(self, window: Window) -> None:
        self._window, self._asked, self.seconds = window, 0, 0.0

    def __enter__(self) -> "_Process":
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "APOLLOD_PARENT_PID": str(os.getpid())},
        )  # fmt: skip
        self._say(self._window)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, left_out: tuple[str, ...], lr_scale: float = 1.0) -> Outcome:
        began = time.monotonic() if self._asked else self._began
        self._asked += 1
        self._say(Without(self._asked, left_out, lr_scale))
        assert self._process.stdout is not None
        outcome = msgspec.json.decode(self._process.stdout.readline(), type=Outcome)
        self.seconds = time.monotonic() - began
        if outcome.error:
            raise SystemExit(outcome.error)
        return outcome

    def _say(self, line: msgspec.Struct) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(line) + b"\n")
        self._process.stdin.flush()

    def memory(self) -> int:
        return sum(_most(pid) for pid in _group(self._process.pid))

    def disk(self) -> int:
        room = Path(self._window.state_dir) / f"{SEARCH_ROOM}.tmp-{self._process.pid}"
        return sum(path.stat().st_size for path in room.rglob("*") if path.is_file())


def _group(leader: int) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.getpgid(int(entry)) == leader:
                    yield int(entry)
            except OSError:
                continue


def _most(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


if __name__ == "__main__":
    main()
