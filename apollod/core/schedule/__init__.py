"""Learning hours: bulk examples are learned on arrival, or at night.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
