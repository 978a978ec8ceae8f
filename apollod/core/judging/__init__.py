"""Examples that a model judges before they are learned: which ones, what verdicts do, and whether the judge is
trusted.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
