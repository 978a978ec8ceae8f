"""The engine child: vLLM, started by module name and extended through its official extension points only.

`load` gets weights into memory that can be shared, `http` is the routes. At the top level: entry points of vLLM and
Python (`__main__`, `plugin`, `worker`, `site/`), changes while requests run (`refresh`), captured answers (`capture`)
and rules for all of it: refusals, import guards, ending with the parent. No other part of apollod imports this package,
and it decides nothing about training: the supervisor does.
"""
