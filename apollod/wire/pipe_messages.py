"""Protocols of helper processes that answer over a pipe, in JSON.

`apollod.trainer.token_texts` shows or counts the tokens of a record. The process
that replays a window takes one object a line: the first on its standard input is a `Window`, each one after it a
`Without`, which is answered by one `Outcome` on its standard output before the next is read.
"""

import msgspec

SEARCH_ROOM = "search"
"""Kind of the directory, in the state directory, for files that replays share: `search.tmp-PID`."""


class TokensWanted(msgspec.Struct, frozen=True):
    """A canonical record, and the settings that its tokens depend on. `digest`: from `example.encoded`, empty if there
    is none."""

    model_dir: str
    record: bytes
    max_tokens: int
    objective: str = "sft"
    digest: str = ""


class TokensShown(msgspec.Struct, frozen=True):
    """The tokens of an example as the trainer learns them. `refused`: why there are none; `hint`: the fix."""

    ids: list[int] = []
    texts: list[str] = []
    """text of each token; a character of several tokens belongs to its last one. Joined they are the whole text"""
    mask: list[bool] = []
    """true for learned tokens"""
    starts: tuple[int, ...] = (0,)
    """start index of each sequence"""
    cut: int = 0
    """tokens dropped from the left of the prompt"""
    left_out: int = 0
    """target turns that are not learned, since the chat template changes their text"""
    changes: dict[str, int] = {}
    """changes to fit length and chat template: see `ExampleEncoded`"""
    digest: str = ""
    template: str = ""
    """defect of the model's chat template"""
    refused: str = ""
    hint: str = ""


class ExampleCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of encoding a record with the trainer's code. `refused`: reason why it cannot be learned."""

    tokens: int = 0
    targets: int = 0
    changes: dict[str, int] = {}
    refused: str = ""


class Window(msgspec.Struct, frozen=True):
    """Steps `first` to `last` of a journal, and the items to measure after them. `references`: digest of the file with
    the baseline's answers, in the blobs of `state_dir`, where replays also keep shared files; `items`: by metric."""

    journal: str
    state_dir: str
    first: int
    last: int
    references: str
    items: dict[str, tuple[str, ...]]


class Without(msgspec.Struct, frozen=True):
    """Replay the window without these examples, each step at this share of its learning rate (`lr_scale`)."""

    number: int
    left_out: tuple[str, ...]
    lr_scale: float = 1.0


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a replay: see `core.facts.quality.inputs.WindowReplayed`; `note`: for people. `error`: why there is
    no result; `for_good`: another try would not help, and the process exits."""

    number: int
    drops: dict[str, float] = {}
    steps: int = 0
    seconds: float = 0.0
    fingerprint: str = ""
    note: str = ""
    error: str = ""
    for_good: bool = False
