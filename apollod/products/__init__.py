"""Products of bf16 matrices on a CPU that has no instructions for them, for both children.

Knows torch and nothing of apollod: what is multiplied, and who asked for it, is not its business.
"""
