"""Optimizers, written from their papers' formulas: one file each (apollo.py, adamw.py, adafactor.py), with the class,
its options and state on top and the formulas below, and one line each in the table of optimizers.py.

Shared: named_optimizer.py (parameters by name, steps, state), backward_updates.py (updates inside the backward pass),
open_step.py (one parameter in one step, the account of a step, and who carries it out), moments, projector, rounding,
row_gradient. apollo_triton.py carries APOLLO out on a GPU. Nothing here knows a model, a loss, a message loop or a
file.
"""
