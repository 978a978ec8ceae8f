"""Captures the engine's answers token by token and keeps them for a while: `[capture]`.

Our client stands between vLLM's HTTP handlers and vLLM's engine (`capturing_client`), so that it covers all endpoints
and changes nothing for HTTP clients; a thread (`keeper`) does everything that takes time. docs/decisions/0017.
"""
