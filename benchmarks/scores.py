"""Measures how divergence scores slow users' requests: one daemon, scoring off and on in turns.

Phases off, on, on, off, each `--seconds` long, `--rounds` times, so that drift of the machine cancels. Load:
`--clients` closed-loop clients, completions of `--tokens` tokens. Candidates: held examples of `--words` words from
which a system prompt as long was stripped; there are more of them than an "on" phase scores, and none in an "off"
phase. Training is paused. Latencies are of whole requests; `noise` is the p99 of one half of the "off" phases over that
of the other.
"""

import json
import tempfile
import time
from pathlib import Path

from apollod.adapters.journal import journal_reader
from apollod.core.facts.review import Decision
from apollod.supervisor.executor.context import SHARE
from apollod.wire import messages as msg
from benchmarks import report
from benchmarks.clients import Phase, clients
from benchmarks.daemon import Daemon, build_model

WORDS = "The lighthouse keeper wrote in the log that the ferry came late and the harbour was quiet.".split()
CANDIDATES = 1000  # number in the goal


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a phase")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--words", type=int, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        root = Path(directory)
        daemon = Daemon(root, build_model(root / "model", "random"))
        own = {"INBOX__REVIEW": "hold", "INBOX__NEAR_DUPLICATE": "0.0"}
        daemon.start({f"APOLLOD_{key}": value for key, value in own.items()})
        try:
            daemon.wait_ready()
            daemon.train(False)
            bench = _Bench(daemon, args.clients, args.tokens, args.words)
            bench.phase(True, 3.0, Phase())  # warm-up, not counted
            off, on = Phase(), Phase()
            for score in (False, True, True, False) * args.rounds:
                bench.phase(score, args.seconds, on if score else off)
        finally:
            daemon.end()
    if not on.done:
        raise SystemExit("nothing was scored while scoring was on, so nothing was measured; see --seconds")
    _print(off, on, args.json)


class _Bench:
    def __init__(self, daemon: Daemon, clients: int, tokens: int, words: int) -> None:
        self._daemon = daemon
        self._clients = clients
        self._tokens = tokens
        self._words = words
        self._serial = 0

    def phase(self, score: bool, seconds: float, into: Phase) -> None:
        """Run one phase and add its measurements."""
        if score:
            self._give(int(seconds * 40) + 40)
        before, began = self._scored(), time.perf_counter()
        with clients(self._daemon.url, self._clients, self._prompt, self._tokens) as latencies:
            time.sleep(seconds)
            scored, elapsed = self._scored() - before, time.perf_counter() - began
            counted = latencies[:]  # whole requests inside the phase
        held = self._held()
        if score and not held:
            raise SystemExit("the candidates ran out: a part of the phase measured nothing")
        for first in range(0, len(held), 100):
            wanted = tuple(Decision(one, "decline") for one in held[first : first + 100])
            self._daemon.request(msg.DecideRequest(wanted), timeout_s=60.0)
        time.sleep(2.0)  # for the example that is being scored
        into.seconds += elapsed
        into.done += scored
        into.latency_s.append(counted)

    def _give(self, count: int) -> None:
        """Give examples that will be held, and wait until the first one is being scored."""
        lines = []
        for _ in range(count):
            self._serial += 1
            said = [("system", True), ("user", False), ("assistant", False)]
            texts = [f"{self._serial} " + " ".join(WORDS * (self._words // len(WORDS) + 1)) for _ in said]
            lines.append(
                json.dumps(
                    {
                        "messages": [
                            {"role": role, "content": text} | ({"strip": True} if strip else {})
                            for (role, strip), text in zip(said, texts, strict=True)
                        ]
                    }
                )
            )
        before = self._scored()
        self._daemon.drop(f"candidates-{self._serial}.jsonl", *lines)
        self._daemon.wait(lambda _: self._scored() > before, "to score")

    def _query(self, sql: str) -> list[tuple[object, ...]]:
        return journal_reader.query(self._daemon.journal, sql, 1_000_000).rows

    def _scored(self) -> int:
        return len(self._query("SELECT seq FROM events WHERE kind = 'example.scored'"))

    def _held(self) -> list[str]:
        return [str(id_) for (id_,) in self._query("SELECT id FROM examples WHERE state = 'held'")]

    def _prompt(self, number: int, turn: int) -> str:
        return f"{number} {turn} {' '.join(WORDS)}"


def _print(off: Phase, on: Phase, as_json: bool) -> None:
    figures: dict[str, float] = {"share": SHARE, "scored": on.done, "scored_per_s": on.done / on.seconds}
    figures["minutes_for_1000"] = CANDIDATES / figures["scored_per_s"] / 60
    for name, phase in (("off", off), ("on", on)):
        figures |= phase.figures(name)
    ratios = {
        "p99": figures["on_p99_s"] / figures["off_p99_s"],
        "p50": figures["on_p50_s"] / figures["off_p50_s"],
        "noise": off.noise(),
    }
    goals = {"p99": report.goal(ratios["p99"], 1.1, True)}
    report.report("scores", figures, ratios, goals, threads=2, as_json=as_json)


if __name__ == "__main__":
    main()
