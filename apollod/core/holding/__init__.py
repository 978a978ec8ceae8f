"""Holding: what the model said before, and keeps while it learns."""
