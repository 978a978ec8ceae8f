"""Existing logs of agents, read once and learned without their instructions.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
