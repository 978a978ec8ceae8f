"""When what is not urgent is learned: as it comes, or at night.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
