"""A Hugging Face model bound to views of the engine's memory: mapping it, building the model on it, reading, writing
and fingerprinting the weights in it. No optimizer, no loss, no checkpoint."""
