"""Pure decisions. Nothing in this package may do I/O, read a clock, draw randomness or log."""
