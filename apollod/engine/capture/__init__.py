"""Captures the engine's answers token by token and keeps them for a while: `[capture]`.

A client of ours stands between vLLM's HTTP handlers and vLLM's engine (`capturing_client`), so that all endpoints are
one and nothing that a client of HTTP sees is touched; a thread (`keeper`) does everything that takes time.
docs/decisions/0017.
"""
