"""The protocol between `apollod ctl example show --mask` and `apollod.trainer.token_texts`: JSON over a pipe."""

import msgspec


class TokensWanted(msgspec.Struct, frozen=True):
    """A canonical record, and what its tokens depend on. `digest`: of `example.encoded`, empty where there is none."""

    model_dir: str
    record: bytes
    max_tokens: int
    objective: str = "sft"
    digest: str = ""


class TokensShown(msgspec.Struct, frozen=True):
    """The tokens of an example as the trainer learns them. `refused`: why there are none; `hint`: what to do about
    it."""

    ids: list[int] = []
    texts: list[str] = []
    """of each token; a letter of several tokens is the text of its last one. Together they are the text"""
    mask: list[bool] = []
    """is it learned?"""
    starts: tuple[int, ...] = (0,)
    """where each sequence begins"""
    cut: int = 0
    """tokens dropped from the left of the prompt"""
    left_out: int = 0
    """turns that were to be learned and are not: the chat template shows them otherwise than they were written"""
    changes: dict[str, int] = {}
    """what was done so that it fits and the chat template takes it: see `ExampleEncoded`"""
    digest: str = ""
    template: str = ""
    """what is wrong with the model's chat template"""
    refused: str = ""
    hint: str = ""


class ExampleCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of encoding a record with the trainer's code. `refused`: reason why it cannot be learned."""

    tokens: int = 0
    targets: int = 0
    changes: dict[str, int] = {}
    refused: str = ""
