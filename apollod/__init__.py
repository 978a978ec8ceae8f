"""apollod: one model that keeps serving and keeps learning, and can prove what it learned.

core/        pure decisions: events, inputs, effects, state + fold, decide, schedules
wire/        pure codecs: protocol messages, framing, weight manifest, journal encoding, inbox records
adapters/    one outside thing each, no decisions
supervisor/  wiring: config, app, loop, executor, control
trainer/     child process: optimizer, step, data, attach, checkpoint
engine/      inside vLLM: entry, plugin, loader, recorder, worker extension, routes
cli/         apollod, apollod ctl, apollod demo: thin layers that print
"""

__version__ = "0.1.0"
