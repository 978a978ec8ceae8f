"""Moments of sessions, labelled with the cues that a person would mark, as logs of the agents that write them.

Cues were written with `tuning.txt`; `held_out.txt` was written at the same time and gives the figures.
Each moment is a heading, `[format] cues`, and lines:

    U a prompt            A an answer            C a summary, in whose place the conversation goes on
    $ a shell command, or T a tool and its arguments, called by the model
    = its output, or x its output if it failed (a command: with exit code 1), or R the user refused it
    I the user interrupted          W n: the user took back n turns          G the last prompt, again in the same place
    B another prompt in the place of the last one          S another answer in the place of the last, not kept
    + or - and a comment: the last answer was rated
"""

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Labelled(NamedTuple):
    """A moment; `cues` as kind or kind:polarity, empty if it has none."""

    format: str
    cues: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    number: int
    """line number of its heading"""


def read(name: str) -> list[Labelled]:
    """All moments of `tuning` or `held_out`."""
    found: list[Labelled] = []
    for number, line in enumerate((HERE / f"{name}.txt").read_text().splitlines(), 1):
        if line.startswith("["):
            format, _, cues = line[1:].partition("] ")
            named = tuple(cue for cue in cues.split(", ") if cue != "-")
            found.append(Labelled(format, named, (), number))
        elif line and not line.startswith("#"):
            text = line[2:].replace("\\n", "\n")
            found[-1] = found[-1]._replace(lines=(*found[-1].lines, (line[0], text)))
    return found
