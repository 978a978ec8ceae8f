"""Tokens of texts and examples, by the tokenizer of a model directory: those of an example as the trainer learns it,
from a short-lived process that loads the tokenizer; the number of a text's, in this process, or as an estimate."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from apollod.errors import ApolloError, ConfigError
from apollod.explain import reason
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
    command = [sys.executable, "-m", "apollod.trainer.token_texts", model_dir, str(max_tokens)]
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


# Compares the vocabularies of two tokenizers: a teacher's token ids mean the same to the model only if every id stands
# for the same token in both.
#
# The table from id to token is read from `tokenizer.json` (of Hugging Face's tokenizers: `model.vocab`, a map or, for
# Unigram, a list, and `added_tokens`). Merges, normalisers and chat templates may differ: a teacher is asked about ids.

FILE = "tokenizer.json"
INSTEAD = "name a directory with a tokenizer.json"


class Vocabulary(NamedTuple):
    """`digest`: 32 hex digits, equal for equal tables; `tokens`: by id."""

    digest: str
    tokens: dict[int, str]


def vocabulary_of(directory: Path) -> Vocabulary:
    """The table of the tokenizer in a directory. Blocking. Raises ConfigError."""
    path = directory / FILE
    try:
        read = json.loads(path.read_bytes())
        vocab = read["model"]["vocab"]
        tokens = (
            {int(id_): str(token) for token, id_ in vocab.items()} if isinstance(vocab, dict)
            else {id_: str(token) for id_, (token, *_) in enumerate(vocab)}
        )  # fmt: skip
        tokens |= {int(one["id"]): str(one["content"]) for one in read.get("added_tokens") or ()}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {reason(error)}", INSTEAD) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is no tokenizer that is understood", INSTEAD) from error
    table = "\0".join(f"{id_}\0{token}" for id_, token in sorted(tokens.items()))
    return Vocabulary(blake2b(table.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest(), tokens)


def difference(one: Vocabulary, other: Vocabulary) -> str:
    """The first difference of two vocabularies, for people; empty: there is none."""
    if one.digest == other.digest:
        return ""
    ids = sorted(one.tokens.keys() | other.tokens.keys())
    id_ = next(id_ for id_ in ids if one.tokens.get(id_) != other.tokens.get(id_))
    said = [repr(each.tokens[id_]) if id_ in each.tokens else "nothing" for each in (one, other)]
    return f"{len(one.tokens):,} and {len(other.tokens):,} tokens; token {id_} is {said[0]} and {said[1]}"
