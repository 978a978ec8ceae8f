"""`apollod ctl`: asks the running daemon, tells it something, or reads its journal file.

A verb is a line in `ctl.VERBS` with the function that adds its arguments; help, dispatch and the check that every
verb is documented follow from that line. A file is named by its noun (`source`, `lesson`), with `_verb` if another part
of apollod has a module of that name (`status_verb`). All verbs share `ctl` (options, daemon, form of an answer) and
`rows` (journal). Nothing here decides, and nothing that `status` needs imports anyio, structlog or aiosqlite.
"""
