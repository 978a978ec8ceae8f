"""Makes a batch of lines that came over a socket."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.record_stream import lines_of
from apollod.adapters.sources.source_files import LINE_BYTES_MAX
from apollod.core.inputs import Batch
from apollod.curation.formats.jsonl_records import read_record
from apollod.curation.formats.lines import BOM
from apollod.curation.formats.reader import Limits
from apollod.curation.moments import Rules
from apollod.curation.redaction import redact


def batch_of_lines(
    lines: Sequence[bytes],
    source: str,
    quarantine: Path,
    line_max: int = LINE_BYTES_MAX,
    first: int = 1,
    rules: Rules = Rules(),  # noqa: B008
) -> Batch:
    """Make a batch of lines that came over a socket, without a position: a caller waits for these. `first`: number of
    the first line within its source.

    Each line is one record, whatever white space is in it. Blocking; raises OSError when a bad line cannot be kept.
    """
    kept_in, limits = Quarantine(quarantine), Limits(line_max)
    if first == 1 and lines:
        lines = [lines[0].removeprefix(BOM), *lines[1:]]
    clean = (redact(raw)[0] for raw in lines)
    items = (item for number, raw in enumerate(clean, first) for item in read_record(number, raw, limits))
    taken = tuple(lines_of(items, kept_in, rules, Counter()))
    last = first + len(lines) - 1
    return Batch(source=source, path="", offset=0, line=last, lines=taken, tracked=False, tier="direct")
