"""The trainer child: a Hugging Face model bound to the engine's memory, and the optimizer that writes it.

message_loop.py answers messages, step.py is one step, scoring.py and ranking.py read weights without writing them.
Packages: bind (the engine's memory as a model), objectives (losses), optim (optimizers), kernels (compiled passes),
undo (reverting the last steps in memory), checkpoints (disk). offline.py is the same loop on memory of its own, for a
replay. The trainer makes no decisions, does not know the journal, and is never imported: it is started by its module's
name."""
