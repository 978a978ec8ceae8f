"""Shows the tokens of one example, from a short-lived process that loads the model's tokenizer."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from apollod.errors import ApolloError
from apollod.wire.token_view import ExampleCount, TokensShown, TokensWanted

TIMEOUT_S = 300.0
SAID_MAX = 400  # characters of what the process wrote when it failed


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
