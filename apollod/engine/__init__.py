"""The engine child: vLLM, started by module name and extended through its official extension points only.

`load` gets weights into memory that can be shared, `serve` is what changes while requests run, `http` is the routes.
Here at the top is what vLLM or Python starts (`__main__`, `plugin`, `worker`, `site/`) and what holds for all of it:
refusals, import guards, the end with the parent. No other part of apollod imports this package, and nothing here
decides what is trained: the supervisor does.
"""
