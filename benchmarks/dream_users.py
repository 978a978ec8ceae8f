"""Measures how much longer users wait while the daemon dreams: with and without dreams, in turns, in one run on one
daemon.

The model of the small world under the real vLLM; imagination and judge are scripted, in this process. Users ask at a
steady rate, independent of answers. `always`: dreams do not give way, but have a lower priority. `idle`: the first
request stops dreams, which begin again between two users; `busy` requests came while the engine was not idle. Without
dreams the daemon is paused. Seconds are those to a whole answer; `step_*`: of a training step in the trainer.
"""

import json
import shutil
import tempfile
import threading
import time
import urllib.request
from importlib import resources
from pathlib import Path

from apollod.demo.dreaming import BEHAVIOURS, LEARNING_RATE
from apollod.demo.world.acting import Acting
from apollod.testing.daemon import Daemon, config_of, free_port
from apollod.wire import control_messages as msg
from benchmarks import report

TOKENS = 8
EVERY_S = {"idle": 2.0, "always": 0.25}
"""seconds between the requests of users"""
PHASE_S = {"idle": 40.0, "always": 20.0}
IDLE_S = 0.25
REST_S = 1.5
P99_MAX = 1.3
"""largest allowed factor of the p99 latency beside dreams"""


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--scale", type=float, default=1.0, help="of the length of a phase")
    args = parser.parse_args()
    waits: dict[str, list[float]] = {}
    counts: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory, Acting(1) as acting:
        daemon = _daemon(Path(directory), acting.url)
        try:
            daemon.start()
            daemon.wait_ready()
            daemon.wait(lambda _: _count(daemon, "dream.trained") >= 3, "to dream")
            for mode in ("idle", "always"):
                if mode == "always":
                    daemon.ctl("dream", "start")  # requested dreams do not wait for idle times
                for way in ("with", "without", "without", "with"):
                    daemon.request(msg.ResumeRequest() if way == "with" else msg.PauseRequest())
                    time.sleep(REST_S)
                    kinds = {"dreams": "dream.requested", "steps": "step.completed", "busy": "engine.busy"}
                    before = {name: _count(daemon, kind) for name, kind in kinds.items()}
                    waits.setdefault(f"{mode}_{way}", []).extend(
                        _users(daemon, PHASE_S[mode] * args.scale, EVERY_S[mode])
                    )
                    for name, kind in kinds.items():
                        key = f"{mode}_{way}_{name}"
                        counts[key] = counts.get(key, 0.0) + _count(daemon, kind) - before[name]
            steps = [float(one) for (one,) in daemon.query(_SECONDS)]
        finally:
            daemon.end()
    _print(waits, counts, steps, args.json)


_SECONDS = "SELECT json_extract(body, '$.seconds') FROM events WHERE kind = 'step.completed'"


def _daemon(root: Path, acting: str) -> Daemon:
    with resources.as_file(resources.files("apollod") / "data" / "world-model") as model:
        shutil.copytree(model, root / "model")
    port = free_port()
    config = config_of(
        root, root / "model", port,
        engine='served_name = "bench"\nargs = ["--max-model-len", "256", "--max-num-seqs", "32"]\n',
        trainer=f"lr = {LEARNING_RATE}\nmax_tokens = 256\n", checkpoint="delay_s = 3600\n",
        judge='endpoint = "scripted"\nvotes = 1\n',
        dream=f'endpoint = "scripted"\nmode = "idle"\nidle_s = {IDLE_S}\nshare_max = 1.0\n',
    )  # fmt: skip
    config += f'[[endpoint]]\nname = "scripted"\nbase_url = "{acting}"\nmodel = "scripted"\n'
    for name in ("ask", "caps", "end"):  # none of them ever settles
        one = BEHAVIOURS[name]
        told, opposite = one.texts, one.opposite.texts[:2]
        contrast = json.dumps([*opposite, f"{told[0]} {opposite[0]}"])
        config += f"[[dream.pattern]]\nname = {json.dumps(one.kind)}\ninstruction = {json.dumps(told[0])}\n"
        config += f"contrast = {contrast}\nsettle = [1000, 1000]\nheld_out = 1\ndreams = 0\ndays = 0\n"
    return Daemon(root, config, port)


def _count(daemon: Daemon, kind: str) -> float:
    return float(daemon.query(f"SELECT count(*) FROM events WHERE kind = '{kind}'")[0][0])


def _users(daemon: Daemon, seconds: float, every_s: float) -> list[float]:
    """Seconds to each answer."""
    waits: list[float] = []
    failed: list[Exception] = []

    def ask(number: int) -> None:
        messages = [{"role": "user", "content": f"open the red box {number}"}]
        body = {"model": "bench", "messages": messages, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(
            f"{daemon.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                response.read()
        except OSError as error:
            failed.append(error)
        waits.append(time.perf_counter() - began)

    threads = []
    began = time.perf_counter()
    for number in range(int(seconds / every_s)):
        time.sleep(max(0.0, began + number * every_s - time.perf_counter()))
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return waits


def _print(waits: dict[str, list[float]], counts: dict[str, float], steps: list[float], as_json: bool) -> None:
    figures = {f"step_p{part}_s": report.percentile(steps, part / 100) for part in (50, 99)}
    figures |= {"step_max_s": max(steps)} | counts
    goals, ratios = {}, {}
    for name, each in waits.items():
        figures |= {f"{name}_p{part}_s": report.percentile(each, part / 100) for part in (50, 99)}
        figures |= {f"{name}_max_s": max(each), f"{name}_requests": float(len(each))}
    for mode in EVERY_S:
        if not counts[f"{mode}_with_dreams"] or counts[f"{mode}_without_dreams"]:
            raise SystemExit(f"{mode}: no dreams where there should be, or some where there should be none")
        for part in (50, 99):
            longer = figures[f"{mode}_with_p{part}_s"] - figures[f"{mode}_without_p{part}_s"]
            goals[f"{mode}_p{part}_longer_s"] = report.goal(longer, figures["step_p99_s"], at_most=True)
            ratios[f"{mode}_p{part}"] = figures[f"{mode}_with_p{part}_s"] / figures[f"{mode}_without_p{part}_s"]
        goals[f"{mode}_p99"] = report.goal(ratios[f"{mode}_p99"], P99_MAX, at_most=True)
    report.report("dream_users", figures, ratios, goals, threads=1, as_json=as_json)


if __name__ == "__main__":
    main()
