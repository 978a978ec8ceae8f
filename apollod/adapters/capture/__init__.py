"""The file in which the engine keeps its recent answers, token by token, and in which the daemon finds them by response
id. The engine's API process writes it, the supervisor reads it; nothing else of either is shared.
"""
