"""Benchmarks, never timed tests: `python -m benchmarks.NAME --json`. Ratios compare measurements of the same run."""
