"""The last steps, kept in memory so that they can be undone: the ring of steps, and how the way back from one write
is packed.

Knows memory and optimizer state as tensors only; no optimizer, no file, no message. What is further back is in
checkpoints.
"""
