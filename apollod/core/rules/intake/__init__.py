"""Sources, the examples of their lines, and the queue in which examples wait.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
