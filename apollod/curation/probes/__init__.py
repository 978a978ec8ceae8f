"""Probes: fixed tests of the model, repeated to see whether training makes it worse. Pure: reading probe files, keeping
probes out of the training data, and figures of an answer. `adapters/llm/probing.py` asks them; the core decides when,
and acts on the results."""
