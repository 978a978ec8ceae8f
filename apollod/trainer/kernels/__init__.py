"""Compiled passes over memory, on CPU (numba) and GPU (Triton), and who asks for them (passes.py).

The formulas that they compute are defined, in plain torch, in `optim` and `undo`; a pass on CPU has the same bits.
The bottom of the trainer: nothing here imports another of its rooms.
"""
