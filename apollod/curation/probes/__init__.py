"""Probes: what the model is asked again and again to see whether training makes it worse. Pure: the files they come
in, what of them must not be learned, and the figures of an answer. How they are asked is in `adapters/llm/probing.py`;
when, and what follows, is decided in the core."""
