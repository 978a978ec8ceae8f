"""Handlers of the control socket, by subject: a request in, inputs to the loop, one answer out.

A handler is `async def handler(daemon: Daemon, request: ...) -> Answer`, and a line in `handlers.HANDLERS`; a test says
which request of `wire.messages` has none. Handlers wait and word answers; what happens is decided in `core`.
Connections are `supervisor.control`'s.
"""
