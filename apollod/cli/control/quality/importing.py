"""`apollod ctl quality import`: probes of a task of lm-evaluation-harness."""

import argparse
import json
from pathlib import Path

from apollod.adapters.harness.tasks import documents
from apollod.adapters.system.files import write_whole
from apollod.cli import render
from apollod.cli.control import ctl
from apollod.curation.probes.harness_items import probe_line
from apollod.curation.probes.probe_lines import Probe, probe_of, probe_set
from apollod.errors import ApolloError, RecordRefused
from apollod.explain import reason


def take(args: argparse.Namespace) -> int:
    """Write the file of probes, and say what was left out."""
    out = Path(args.out)
    if out.exists():
        raise ApolloError(f"{out} is there already", "name a new file: what is in one may be the probes of a baseline")
    config, asked = documents(args.task, Path(args.data), args.limit)
    lines, kept, refused = list[str](), list[Probe](), list[str]()
    for number, one in asked:
        try:
            line = json.dumps(probe_line(config, number, one), ensure_ascii=False)
            probe_set([*kept, probe := probe_of(line.encode(), f"document {number}")])
        except RecordRefused as error:
            refused.append(str(error))
            continue
        lines.append(line)
        kept.append(probe)
    if not lines:
        why = f": {refused[0]}" if refused else ", since there are no documents"
        raise ApolloError(f"no document of {args.task} can be a probe{why}", "take another task, or other data")
    try:
        write_whole(out, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise ApolloError(f"{out} cannot be written: {reason(error)}", "name another place") from error
    found = {
        "schema_version": 1, "task": config["task"], "output_type": config["output_type"], "out": str(out),
        "probes": len(lines), "left_out": refused,
    }  # fmt: skip
    said = [f"{out} has {len(lines)} probes of {config['task']}"]
    said += [f"left out: {len(refused)}, the first since {refused[0]}"] if refused else []
    said += [f"name it in [quality] probe = [{json.dumps(str(out.resolve()))}], and start the daemon again; then"]
    said += ["`apollod ctl quality baseline` measures a baseline with it, and says of how many the model passes"]
    ctl.show(args, found, "\n".join(map(render.plain, said)))
    return 0
