"""Behaviours that are practised until they need no instruction: what is dreamt next, and what follows from each answer.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
