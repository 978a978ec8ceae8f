"""Ways of weights from the trainer to an engine.

`facts` says what each way is like, in one table; each way has a module with what engine, trainer and supervisor share
of it, in bytes and descriptors. No torch and no vLLM, which only the children know, and no decisions: the core makes
them from the facts that come with `engine.ready`.
"""
