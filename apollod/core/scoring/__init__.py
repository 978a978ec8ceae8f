"""Measures how much of an answer was owed to text that is stripped: its log-probability with and without that text.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
