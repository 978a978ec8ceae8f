"""The last steps, kept in memory so that they can be undone: the ring of steps, and the packed undo data of a write.

Knows memory and optimizer state as tensors only; no optimizer, no file, no message. Older steps are in checkpoints.
"""
