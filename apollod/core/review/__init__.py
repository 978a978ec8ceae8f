"""Examples that wait for a decision, and who decided what: a person, a judge, or time.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
