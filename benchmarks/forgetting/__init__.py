"""Forgetting of a model that learns one task after the other."""
