"""Examples that wait for a decision, and the decisions: by a person, a judge, or expiry.

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
