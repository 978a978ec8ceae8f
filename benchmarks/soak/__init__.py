"""Runs the real daemon for hours under users, faults and attacks at once: `python -m benchmarks.soak`."""
