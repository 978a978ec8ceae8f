"""Has the model become worse, which examples made it so, and when is it enough: the decisions, without facts of their
own yet.

Nothing here does I/O, reads a clock, draws randomness or logs."""
