"""Learned comparisons: pairs of answers (`dpo`) and rated answers (`kto`). State."""

import msgspec

KEPT = 32
"""last steps of each objective whose figures are kept"""


class PreferencesState(msgspec.Struct):
    """Totals over the life of the journal, and figures of the last steps, each before its write."""

    pairs: int = 0
    """examples learned by `dpo`"""
    ratings: int = 0
    """examples learned by `kto`"""
    margins: tuple[float, ...] = ()
    """of pairs, beta d: by how much more the model prefers the better answer than its reference did"""
    right: tuple[float, ...] = ()
    """of pairs and ratings: 1 where the model is already on the better side of its reference, else 0"""
    gained: tuple[float, ...] = ()
    """of ratings, r in nats an answer"""

    @property
    def zero(self) -> float:
        """z0 of the next step by `kto`, in nats an answer: how far the model is from the references of other answers,
        never below 0 (Ethayarajh et al., arXiv:2402.01306). Each of these answers was measured before it was
        learned itself."""
        return max(0.0, sum(self.gained) / len(self.gained)) if self.gained else 0.0
