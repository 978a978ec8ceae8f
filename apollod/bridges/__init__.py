"""Ways to share weights between trainer and engine.

`facts` describes each bridge, in one table; each has a module with the code that engine, trainer and supervisor share,
in bytes and descriptors. No torch and no vLLM, which only the children know, and no decisions: the core makes them from
the facts that come with `engine.ready`.
"""
