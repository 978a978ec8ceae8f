"""Names of apollod's own files inside a model directory. Imports nothing."""

OURS = ".apollod"
"""Hidden directory; other tools do not look into it."""

REDO = f"{OURS}/redo"
"""What a committed sync still has to do."""

DAEMON = f"{OURS}/daemon"
"""One line: the path of the control socket of the daemon that serves this directory."""
