"""Compares the vocabularies of two tokenizers: a teacher's token ids mean the same to the model only if every id stands
for the same token in both.

The table from id to token is read from `tokenizer.json` (of Hugging Face's tokenizers: `model.vocab`, a map or, for
Unigram, a list, and `added_tokens`). Merges, normalisers and chat templates may differ: a teacher is asked about ids.
"""

import json
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from apollod.errors import ConfigError
from apollod.explain import reason

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
