"""The file in which the engine keeps its recent answers, token by token, and in which the daemon finds them by response
id. The engine's API process adds to it, the supervisor reads it and drops what gets too old; nothing else of either is
shared.
"""
