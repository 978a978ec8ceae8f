"""Measures the effect of learning: the loss of lines before their step, and again afterwards.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs.
"""
