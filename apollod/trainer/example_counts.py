"""Entry of the process that tells for each record whether the trainer can learn it: `python -m
apollod.trainer.example_counts MODEL_DIR MAX_TOKENS`, a canonical record a line on standard input, an `ExampleCount` a
line on standard output. It loads a tokenizer and no weights, and encodes like the trainer."""

import os
import sys

import msgspec

from apollod import foreign_wheels
from apollod.wire.pipe_messages import ExampleCount


def main() -> int:
    """Count records until the input ends."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    foreign_wheels.guard()
    from apollod.errors import ApolloError
    from apollod.explain import line_of
    from apollod.trainer.objectives.encoding import load_tokenizer
    from apollod.trainer.objectives.table import encoded, objective_of
    from apollod.wire.comparisons import decode_learned

    model_dir, max_tokens = sys.argv[1], int(sys.argv[2])
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


if __name__ == "__main__":
    sys.exit(main())
