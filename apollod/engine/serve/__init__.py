"""Changes while requests run: pauses around writes, versions, cached prefixes, refreshes, comparisons.

The supervisor sends orders and gets answers; it decides when and why to give them.
"""
