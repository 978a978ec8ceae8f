"""Handlers of the control socket, by subject: a request in, inputs to the loop, one answer out.

A handler is `async def handler(daemon: Daemon, request: ...) -> Answer` with a public name; the type of `request` says
what it answers, and a test finds requests of `wire.messages` without one. Handlers wait and build answers; `core`
decides. `supervisor.control` finds them and handles connections.
"""
