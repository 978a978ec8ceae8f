"""`apollod checkpoint` and `apollo-checkpoint`: weights on disk, with or without a daemon.

How files are read, proved and written is in `store`; here is what a person types and is told. Modules that load numpy
are imported when a command runs, not when it is parsed.
"""
