"""The protocol between `apollod ctl example show --mask` and `apollod.trainer.token_texts`: JSON over a pipe."""

import msgspec


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
