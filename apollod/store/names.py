"""Names of apollod's own files inside a model directory. Imports nothing."""

OURS = ".apollod"
"""Hidden directory that other tools ignore."""

REDO = f"{OURS}/redo"
"""Remaining work of a committed sync."""

DAEMON = f"{OURS}/daemon"
"""One line: the path of the control socket of the daemon that serves this directory."""
