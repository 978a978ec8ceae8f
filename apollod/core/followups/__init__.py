"""Follow-up classification: the served model scores whether a user's next message rejects the answer, where no phrase
decides it.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
