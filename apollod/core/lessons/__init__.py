"""Lessons: what the model is told until it knows it, in any wording."""
