"""Engine and trainer as processes: their starts and ends.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs.
"""
