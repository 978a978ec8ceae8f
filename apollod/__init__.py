"""apollod: one model that keeps serving and keeps learning, and can prove what it learned.

core/        pure decisions, one package a subject: events, inputs, effects, state and its fold, policy
wire/        pure codecs: protocol messages, framing, weight manifest, events, records, status
curation/    pure text work: log formats, records
model/       facts about a model from its files: shapes, layers, memory
bridges/     ways to share weights with an engine
store/       file work on a model directory: blocks, redo, deltas, history
adapters/    interfaces to the outside, one each, no decisions
supervisor/  wiring: config, app, loop, executor, control
trainer/     child process: binding, objectives, optimizers, kernels, undo, checkpoints
engine/      inside vLLM: loading, serving, HTTP
cli/         apollod, apollod ctl, apollo-checkpoint: thin layers that print
demo/        the product in a few minutes, with a small model made here
testing/     one driver of a daemon, and an engine without vLLM
"""

__version__ = "0.1.0"
