"""Examples that a model judges before they are learned: whom it is asked about, what its verdicts do, and whether it is
trusted.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
