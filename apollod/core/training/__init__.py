"""Windows and steps: their beginnings, and the consequences of their results.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs.
"""
