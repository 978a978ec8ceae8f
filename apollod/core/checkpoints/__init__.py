"""Weights on disk: when a checkpoint is written, which ones are kept, and the command that is run after one.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
