"""Engine and trainer as processes: when they start, and what their end means.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
