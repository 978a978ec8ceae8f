"""Publishes the trainer's writes to requests: fences around each write, and the handling of stale cached prefixes.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs.
"""
