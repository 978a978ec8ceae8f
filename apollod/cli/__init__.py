"""The command line: parse, ask, print. stdout carries the result, stderr everything else; exit codes are in `exits`.

A command is a line in `main.COMMANDS` and a module with `add(parser)` (see `commands`). What has several modules has a
room: `control` is `apollod ctl`, `checkpoints` is `apollod checkpoint` and `apollo-checkpoint`, `replay` is `apollod
replay`. Nothing here decides or writes state: it asks the daemon, or reads files with what `adapters` and `store`
offer.
"""
