"""Measures how much an answer depends on stripped text: its log-probability with and without that text.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
