"""The shape of one step's batches, which determines its memory. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from apollod.core.holding.choice import OF_PRACTICE

ROWS = OF_PRACTICE
"""most sequences of a batch: wordings that one step practises, and anchors that it holds"""

CHUNK = 64
"""tokens in a chunk of a gated delta net (transformers, torch_chunk_gated_delta_rule)"""


@dataclass(frozen=True)
class Batch:
    """Sequences padded to the longest of them."""

    rows: int = 0
    length: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, padding included."""
        return self.rows * self.length

    @property
    def targets(self) -> int:
        """Most learned tokens: all but the first one of each sequence."""
        return self.rows * max(0, self.length - 1)

    def in_chunks(self, size: int) -> int:
        """Like `tokens`, with each sequence padded to whole chunks."""
        return self.rows * (-(-self.length // size) * size)


@dataclass(frozen=True)
class StepShape:
    """`learned`: examples; `held`: anchors. Each token counts as learned, and as having a teacher."""

    learned: Batch
    held: Batch = Batch()

    @property
    def tokens(self) -> int:
        return self.learned.tokens + self.held.tokens

    @property
    def batches(self) -> tuple[Batch, Batch]:
        return self.learned, self.held

    def in_chunks(self, size: int) -> int:
        """See `Batch`."""
        return sum(batch.in_chunks(size) for batch in self.batches)


def largest_steps(max_tokens: int, bound: int, holds: bool, width: int) -> Iterator[StepShape]:
    """Shapes, one of which has the highest memory of all that are one example of at most `max_tokens`, or have at most
    `bound` tokens, with their anchors if steps hold any.

    The memory of a step grows with the tokens of each batch, with two exceptions: logits are kept for at most width / 2
    learned tokens (trainer/objectives/loss.py), and a gated delta net pads each sequence to whole chunks. So a shorter
    batch may need more than a longer one.
    """
    half = width // 2
    for length in {max_tokens, min(max_tokens, half + 1)}:
        yield StepShape(Batch(1, length))
    most = min(max_tokens, bound)
    for tokens in {most, min(most, bound // 2), min(most, ROWS)} if holds else {most}:
        for learned in _sizes(tokens, half):
            left = bound - learned.tokens if holds else 0
            for held in _sizes(left, half) if left > 0 else (Batch(),):
                yield StepShape(learned, held)


def _sizes(most: int, half: int) -> Iterator[Batch]:
    """Yield batches of at least `most` tokens, in one sequence and in as many as possible; among those of at most
    `most` the one with the most chunks; and one with `half` learned tokens, if those are fewer."""
    rows = min(ROWS, most)
    yield Batch(rows, -(-most // rows))
    yield Batch(1, most)
    yield max(_just_over(most), key=lambda batch: batch.in_chunks(CHUNK))
    rows = next(rows for rows in range(ROWS, 0, -1) if half % rows == 0)
    if (kept := Batch(rows, half // rows + 1)).tokens < most:
        yield kept


def _just_over(most: int) -> Iterator[Batch]:
    """Yield batches of at most `most` tokens, each sequence one token longer than whole chunks."""
    for length in range(1, most + 1, CHUNK):
        yield Batch(min(ROWS, most // length), length)
