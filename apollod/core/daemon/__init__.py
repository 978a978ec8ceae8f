"""A life of the daemon: its start and end, its settings, and what people and defects keep it from doing.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
