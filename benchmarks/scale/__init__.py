"""Measures the whole daemon at the size of a real model, on CPU: see `__main__.py`."""
