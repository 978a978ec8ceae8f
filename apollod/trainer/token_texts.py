"""Entry of the process that shows or counts tokens. It loads a tokenizer and no weights, and encodes like the trainer.

`python -m apollod.trainer.token_texts`: one `TokensWanted` on standard input, one `TokensShown` on standard output.
`python -m apollod.trainer.token_texts MODEL_DIR MAX_TOKENS` tells for each record whether the trainer can learn it: a
canonical record a line on standard input, an `ExampleCount` a line on standard output.
"""

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from apollod import foreign_wheels
from apollod.wire.pipe_messages import ExampleCount, TokensShown, TokensWanted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WINDOW = 16  # tokens; a character has at most 4 bytes, so at most 4 tokens


def main() -> int:
    """Read one request, or with arguments records until the input ends, and answer."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if len(sys.argv) > 1:
        foreign_wheels.guard()
        return count(sys.argv[1], int(sys.argv[2]))
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=TokensWanted)
    foreign_wheels.guard()
    sys.stdout.buffer.write(msgspec.json.encode(shown(wanted)))
    return 0


def count(model_dir: str, max_tokens: int) -> int:
    """Count records until the input ends."""
    from apollod.errors import ApolloError
    from apollod.explain import line_of
    from apollod.trainer.objectives.encoding import load_tokenizer
    from apollod.trainer.objectives.table import encoded, objective_of
    from apollod.wire.comparisons import decode_learned

    tokenizer, problem = None, ""
    try:
        tokenizer = load_tokenizer(model_dir)
    except ApolloError as error:
        problem = error.line()
    for line in sys.stdin.buffer:
        record = line.rstrip(b"\n")
        try:
            assert tokenizer is not None
            tokens = encoded(tokenizer, record, objective_of(decode_learned(record)), max_tokens)
            found = ExampleCount(len(tokens.ids), tokens.targets, changes=dict(tokens.changes))
        except ApolloError as error:
            found = ExampleCount(refused=error.line())
        except AssertionError:
            found = ExampleCount(refused=problem)
        except Exception as error:  # noqa: BLE001 - whatever templates and tokenizers raise
            found = ExampleCount(refused=f"it cannot be tokenised ({line_of(error)})")
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()
    return 0


def shown(wanted: TokensWanted) -> TokensShown:
    """Ids, texts and mask of a record, by the rules under which its digest was recorded."""
    from apollod.errors import ApolloError
    from apollod.trainer.objectives.encoding import load_tokenizer, template_problem
    from apollod.trainer.objectives.table import encoded, objective_named

    try:
        tokenizer = load_tokenizer(wanted.model_dir)
        objective = objective_named(wanted.objective)
        tokens = encoded(tokenizer, wanted.record, objective, wanted.max_tokens, wanted.digest)
    except ApolloError as error:
        return TokensShown(refused=str(error), hint=error.hint)
    return TokensShown(
        ids=tokens.ids,
        texts=[text for ids, _ in tokens.sequences() for text in texts_of(tokenizer, ids)],
        mask=tokens.mask,
        starts=tokens.starts,
        cut=tokens.cut,
        left_out=tokens.left_out,
        changes=dict(tokens.changes),
        digest=tokens.digest(),
        template=template_problem(tokenizer),
    )


def texts_of(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> list[str]:
    """The text of each token. It depends on the token before (some vocabularies drop a leading space), and a character
    may take several tokens: it is the text of its last one."""
    texts: list[str] = []
    before = begun = 0  # tokens from `begun` on have no text yet; those from `before` on give context
    for end in range(1, len(ids) + 1):
        old = _decoded(tokenizer, ids[before:begun])
        new = _decoded(tokenizer, ids[before:end])[len(old) :]
        if new.endswith("\ufffd") and end < len(ids) and end - begun < WINDOW:
            texts.append("")
            continue
        texts.append(new)
        before, begun = begun, end
    return texts


def _decoded(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


if __name__ == "__main__":
    sys.exit(main())
