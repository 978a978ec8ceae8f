"""Windows and steps: when one begins, and what its result means.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
