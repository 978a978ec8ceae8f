"""How a write of the trainer reaches requests: fences around it, and what becomes of cached prefixes.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
