"""Recovery after a crash or a restart: brings weights and optimizer to the journal's last step.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
