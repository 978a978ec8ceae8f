"""Has the model become worse, and when is it enough. Which examples made it so (`culprits`) is decided, but nobody asks
yet.

Nothing here does I/O, reads a clock, draws randomness or logs."""
