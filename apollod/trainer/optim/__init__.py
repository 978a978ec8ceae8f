"""Optimizers, written from their papers' formulas.

One file per formula: apollo_update.py, adam_update.py, adafactor.py; beside each the class with its options and state
(apollo.py, adamw.py). Shared: named_optimizer.py (parameters by name, steps, state), backward_updates.py (updates
inside the backward pass), moments, moment_store, projector, rounding, row_gradient. optimizers.py makes the configured
one; `backends` carry updates out. Nothing here knows a model, a loss, a message loop or a file.
"""
