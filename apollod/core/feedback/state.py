"""Counts of ratings."""

import msgspec


class FeedbackState(msgspec.Struct):
    """Totals over the life of the journal."""

    rated: int = 0
    """rated answers"""
