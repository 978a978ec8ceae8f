"""Checks that engine and trainer still see the same weights, by comparing log-probabilities between steps.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
