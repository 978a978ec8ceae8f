"""A Hugging Face model bound to views of the engine's memory: mapping it, building the model on it, reading, writing
and fingerprinting the weights that lie in it, and the probe that an alignment asks of them. No optimizer, no loss, no
checkpoint.
"""
