"""The engine child when the engine is elsewhere (`[weights] bridge`): it holds the memory that the trainer writes to,
sends every version of the weights to the engines in `[[weights.receiver]]`, and passes requests on to them.

It follows the protocol of our own vLLM (`apollod.engine`), so that supervisor, core and trainer need not know. No vLLM
is imported.
"""
