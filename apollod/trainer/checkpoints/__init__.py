"""Weights and optimizer state to disk and back, while steps go on: the copy that is written, the thread that writes
it, the restore.

Formats and crash safety of files are `apollod.store`'s; which checkpoint is written when, and which are kept, is the
core's.
"""
