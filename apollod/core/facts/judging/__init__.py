"""Examples that a model judges before they are learned: their choice, the effect of verdicts, and trust in the judge.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs.
"""
