"""Decisions of each subject of the core: its handlers of inputs, its beginnings, its folds, its part of `status`.

Rules read the whole state and the facts of any subject; among themselves they import in one order. Nothing here does
I/O, reads a clock, draws randomness or logs.
"""
