"""The command line: parse, ask, print. stdout carries the result, stderr everything else.

A command is a line in `main.COMMANDS` and a function that adds its arguments (see `commands`); `control` is `apollod
ctl`. Nothing here decides or writes state: commands ask the daemon, or read files with what `adapters` and `store`
offer. Modules that load numpy are imported when a command runs, not when it is parsed.
"""
