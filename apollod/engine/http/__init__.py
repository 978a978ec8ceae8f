"""HTTP on the engine's port: what apollod adds to vLLM's API (`routes`, behind `guard`) and to its GET
/metrics (`metrics`).

Runs in vLLM's API server process. Every route is one request to the supervisor over its socket; nothing is decided or
kept here, and nothing that talks to the engine itself belongs here (that is `engine.serve`).
"""
