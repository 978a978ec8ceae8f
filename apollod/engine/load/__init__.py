"""Loads a checkpoint into memory that the trainer maps: moved, recorded while vLLM loads, verified before it serves.

Runs once, before the first request. Later changes of the weights belong to `refresh`.
"""
