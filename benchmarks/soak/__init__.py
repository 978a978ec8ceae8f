"""A watch over the real daemon for hours, with all at once that may happen to it: `python -m benchmarks.soak`."""
