"""Compiled passes over memory, on CPU (numba) and GPU (Triton), and access to them (passes.py).

Their formulas are defined, in plain torch, in `optim` and `undo`; a pass on CPU gives the same bits. The lowest layer
of the trainer: nothing here imports another of its packages.
"""
