"""Weights and optimizer state to disk and back, while steps go on: the snapshot to write, the thread that writes it,
the restore.

Formats and crash safety of files are in `apollod.store`; the core decides which checkpoints to write and to keep.
"""
