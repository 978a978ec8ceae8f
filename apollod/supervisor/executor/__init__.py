"""Carries out effects, one module a subject.

Each `*_effects` module has a coroutine for every effect of its subject and a table of them, `HANDLERS`; `dispatch`
joins the tables. Nothing here decides: the outcome of an effect is an input, and the core decides its consequences.
"""

from apollod.supervisor.executor.dispatch import Executor

__all__ = ["Executor"]
