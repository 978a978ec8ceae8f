"""Behaviours practised until they need no instruction: chooses the next dream, and handles each answer.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs.
"""
