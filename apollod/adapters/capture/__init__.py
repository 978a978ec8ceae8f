"""The file in which the engine keeps its recent answers, token by token, so that the daemon finds them by response id.

The engine's API process adds to it, the supervisor reads it and removes expired answers; the two share nothing else.
"""
