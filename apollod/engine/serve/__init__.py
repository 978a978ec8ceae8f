"""Changes while requests run: pauses around writes, versions, cached prefixes, refreshes, comparisons.

Orders come from the supervisor and are answered; when and why to give them is decided there.
"""
