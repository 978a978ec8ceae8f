"""Handlers of the control socket, by subject: a request in, inputs to the loop, one answer out.

A handler is `async def handler(daemon: Daemon, request: ...) -> Answer`, and a line in `control.HANDLERS`; a test
finds requests of `wire.messages` without a handler. Handlers wait and build answers; `core` decides.
`supervisor.control` has the table and handles connections.
"""
