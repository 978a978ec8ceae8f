"""Lessons: what people are told of them."""
