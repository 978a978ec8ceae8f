"""Counts the tokens of a text: by the tokenizer of a model directory if there is one, else by estimate."""

from collections.abc import Callable
from pathlib import Path

CHARACTERS_PER_TOKEN = 4
ESTIMATED = f"estimated at {CHARACTERS_PER_TOKEN} characters a token"
BY_MODEL = "by the model's tokenizer, without what its chat template adds"

Count = Callable[[str], int]


def token_counter(model: Path | None) -> tuple[Count, str]:
    """Return a function that counts the tokens of a text, and a readable description of its method. Never raises: it
    falls back to an estimate."""
    file = model / "tokenizer.json" if model is not None else None
    counted = _counter(file) if file is not None and file.is_file() else None
    return (counted, BY_MODEL) if counted is not None else (_estimate, ESTIMATED)


def _estimate(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _counter(file: Path) -> Count | None:
    """Count by this tokenizer; None if the file cannot be read."""
    try:
        from tokenizers import Tokenizer  # it comes with vLLM, and takes a second for a large vocabulary

        tokenizer = Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001  for a file that it cannot read it raises nothing narrower
        return None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
