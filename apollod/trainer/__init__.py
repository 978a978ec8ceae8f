"""The trainer child: a Hugging Face model bound to the engine's memory, and the optimizer that writes it."""
