"""Entry of the process that shows tokens: `python -m apollod.trainer.token_texts`, one `TokensWanted` on standard
input, one `TokensShown` on standard output. It loads a tokenizer and no weights, and encodes like the trainer."""

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from apollod import foreign_wheels
from apollod.wire.pipe_messages import TokensShown, TokensWanted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WINDOW = 16  # tokens; a character has at most 4 bytes, so at most 4 tokens


def main() -> int:
    """Read one request, write one answer."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=TokensWanted)
    foreign_wheels.guard()
    sys.stdout.buffer.write(msgspec.json.encode(shown(wanted)))
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
