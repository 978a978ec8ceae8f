"""Rollback to the weights of an earlier step, on the running server.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
