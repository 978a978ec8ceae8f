"""Environments of reinforcement learning: they give prompts, and score answers to them.

This package asks them, bounds what they reply and how long they take, and parses it. It does not decide which prompt is
asked for or what follows from a score, and writes nothing to the journal. Code of an environment never runs in this
process.
"""
