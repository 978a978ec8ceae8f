"""Runs `source test` on logs from other projects: every sample file below a directory, by repository.

    python -m benchmarks.foreign --json --below DIRECTORY

`DIRECTORY/OWNER+NAME` is a checkout of a repository. Only its `*.jsonl`, `*.json` and compressed ones in a directory
named like tests, fixtures, samples or data are read. Answers of every model count, those of subagents, too. A file that
takes longer than `LIMIT_S` counts as hung, one that raises as failed; both are defects.
"""

import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from apollod.adapters.sources.source_files import SUFFIXES, Terms
from apollod.adapters.sources.trial import UNKNOWN, Trial
from apollod.curation.moments import Rules
from apollod.errors import SourceRefused
from benchmarks import report

LIMIT_S = 60
SAMPLES = re.compile(r"(?:^|[-_.])(?:tests?|__tests__|testdata|fixtures?|samples?|data|examples?|transcripts?)$", re.I)
RULES = Rules(models=("*",), sidechains=True)
Counts = Counter[str]


class Hung(Exception):
    """A file took too long."""


def main() -> None:
    """Read everything and print the results."""
    parser = report.parser("What `source test` makes of logs that others wrote.")
    parser.add_argument("--below", type=Path, required=True, metavar="DIRECTORY", help="where the checkouts are")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _ring)
    repositories = {place.name: _repository(place) for place in sorted(args.below.iterdir()) if place.is_dir()}
    total = Counter[str]()
    for one in repositories.values():
        total.update({key: value for key, value in one.items() if isinstance(value, int)})
    body = {"benchmark": "foreign", "total": total, "repositories": repositories, "environment": report.environment(1)}
    print(json.dumps(body) if args.json else json.dumps(body, indent=2))


def _repository(place: Path) -> dict[str, Any]:
    counts, formats, why = Counts(), Counter[str](), Counter[str]()
    begin = time.process_time()
    for path in _samples(place):
        counts["files"] += 1
        counts["bytes"] += path.stat().st_size
        trial = Trial(Terms(RULES))
        try:
            signal.alarm(LIMIT_S)
            _read(trial, path, counts, why)
        except Hung:
            counts["hung"] += 1
        except SourceRefused:
            counts["refused files"] += 1
        except Exception as error:  # noqa: BLE001
            counts["failed"] += 1
            why[f"{path.relative_to(place)}: {type(error).__name__}: {error}"[:200]] += 1
        finally:
            signal.alarm(0)
        formats.update(trial.formats)
        counts["records"] += trial.records
        counts["unknown records"] += sum(n for what, n in trial.counts.items() if what.startswith("unknown"))
        counts["not learned"] += sum(n for what, n in trial.counts.items() if what.startswith("dropped"))
    return {
        "commit": _commit(place), **{key: counts[key] for key in KEYS}, "cpu_s": round(time.process_time() - begin, 1),
        "formats": dict(formats.most_common()), "reasons": dict(why.most_common(8)),
    }  # fmt: skip


KEYS = (
    "files", "bytes", "records", "answers", "refused", "refused files", "unknown files", "unknown records",
    "not learned", "hung", "failed",
)  # fmt: skip


def _read(trial: Trial, path: Path, counts: Counts, why: Counter[str]) -> None:
    for tried in trial.read(path):
        if tried.learned is not None:
            counts["answers"] += 1
        elif UNKNOWN in trial.formats:
            counts["unknown files"] += 1
        else:
            counts["refused"] += 1
            why[re.sub(r"\d+|'[^']*'", "_", tried.reason)[:100]] += 1


def _samples(place: Path) -> Iterator[Path]:
    """Files that may be logs, in directories named like samples."""
    for path in sorted(place.rglob("*")):
        within = path.relative_to(place).parts[:-1]
        if path.name.endswith((*SUFFIXES, ".json.gz", ".json.zst")) and any(map(SAMPLES.search, within)):
            if path.is_file() and not path.is_symlink():
                yield path


def _commit(place: Path) -> str:
    """The commit that is checked out; empty if unknown."""
    asked = subprocess.run(["git", "-C", str(place), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def _ring(number: int, frame: FrameType | None) -> None:
    raise Hung


if __name__ == "__main__":
    main()
