"""A document taught to a real model, and questions about it in other words."""
