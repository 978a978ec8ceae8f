"""Logs of further coding agents and of evaluations, a file each. Like all of `formats`, pure: bytes to entries."""
