"""What the person wrote next, scored by the served model where no phrase speaks: did it reject the answer?

A subject of the core: nothing here does I/O, reads a clock, draws randomness or logs."""
