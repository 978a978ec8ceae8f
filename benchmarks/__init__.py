"""Benchmarks, never timed tests: `python -m benchmarks.NAME --json`. Ratios are of things measured in the same run."""
