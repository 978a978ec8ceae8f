"""Loads a checkpoint into memory that the trainer maps: moved, recorded while vLLM loads, verified before it serves.

Runs once, before the first request. What happens to the weights later belongs to `serve`.
"""
