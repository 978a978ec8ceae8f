"""Holding: keeps the model's earlier answers while it learns."""
