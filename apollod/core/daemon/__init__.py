"""A life of the daemon: start and end, settings, pauses and halts.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs.
"""
