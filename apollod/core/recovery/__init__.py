"""From what a crash or a restart left behind to the weights and the optimizer of the journal's last step.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
