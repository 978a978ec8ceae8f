"""The trainer child: a Hugging Face model bound to the engine's memory, and the optimizer that writes it.

message_loop.py answers messages, step.py is one step. Rooms: bind (the engine's memory as a model), objectives
(losses), optim (optimizers), kernels (compiled passes), undo (the last steps, taken back in memory), checkpoints
(disk). offline.py is the same loop on memory of its own, for a replay. No decision is made here, and nothing knows
the journal; nobody imports the trainer: it is started by its module's name.
"""
