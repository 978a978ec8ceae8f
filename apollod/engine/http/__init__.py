"""HTTP on the engine's port: apollod's additions to vLLM's API (`routes`, behind `guard`) and to its GET /metrics
(`metrics`).

Runs in vLLM's API server process. Every route is one request to the supervisor over its socket, but for `generate`,
which vLLM's own routes answer; nothing is decided or stored here, and code that talks to the engine itself belongs in
`engine.refresh`.
"""
