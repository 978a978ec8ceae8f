"""The quality guard: whether the model has become worse, when that is an alarm, and which examples did it (`culprits`).

Nothing here does I/O, reads a clock, draws randomness or logs."""
