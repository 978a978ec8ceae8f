"""Tokens of texts and examples, by the tokenizer of a model directory: those of an example as the trainer learns it,
from a short-lived process that loads the tokenizer; the number of a text's, in this process, or as an estimate."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from apollod.errors import ApolloError
from apollod.wire.pipe_messages import ExampleCount, TokensShown, TokensWanted

TIMEOUT_S = 300.0
SAID_MAX = 400  # characters of what the process wrote when it failed
CHARACTERS_PER_TOKEN = 4
ESTIMATED = f"estimated at {CHARACTERS_PER_TOKEN} characters a token"
BY_MODEL = "by the model's tokenizer, without what its chat template adds"

Count = Callable[[str], int]


def tokens_of(wanted: TokensWanted) -> TokensShown:
    """Tokens of an example as the trainer learns it, or the reason why it cannot. Raises ApolloError if the process
    fails."""
    command = [sys.executable, "-m", "apollod.trainer.token_texts"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(wanted), capture_output=True, timeout=TIMEOUT_S, check=False
        )
        shown = msgspec.json.decode(done.stdout, type=TokensShown)
    except subprocess.TimeoutExpired as error:
        raise ApolloError(
            f"the tokenizer gave no tokens in {TIMEOUT_S:g} s", "try again on a quieter machine"
        ) from error
    except msgspec.MsgspecError as error:
        said = done.stderr.decode("utf-8", "replace").strip()[-SAID_MAX:]
        raise ApolloError(
            f"the process that tokenises ended with code {done.returncode}", said or "report this"
        ) from error
    return shown


@contextmanager
def counting(model_dir: str, max_tokens: int) -> Iterator[Callable[[bytes], ExampleCount]]:
    """Start a process that encodes canonical records as the trainer does; yields a function that checks one record.
    Raises ApolloError if the process fails."""
    command = [sys.executable, "-m", "apollod.trainer.example_counts", model_dir, str(max_tokens)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def count(record: bytes) -> ExampleCount:
            try:
                asks.write(record + b"\n")
                asks.flush()
                return msgspec.json.decode(answers.readline(), type=ExampleCount)
            except (OSError, msgspec.MsgspecError) as error:
                raise ApolloError("the process that counts tokens ended", "report this") from error

        try:
            yield count
        finally:
            process.kill()


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
