"""`apollod ctl`: what asks the running daemon or tells it something. Questions that its journal file answers are in
`questions`.

A verb is a module with `add(parser)`, which gives the parser its arguments and sets what runs it, and a line in
`verbs.VERBS`; `apollod ctl --help`, dispatch and the check that every verb is documented follow from that line. Modules
without `_verb` are what verbs share. Nothing here decides, and nothing that `status` needs imports anyio, structlog or
aiosqlite.
"""
