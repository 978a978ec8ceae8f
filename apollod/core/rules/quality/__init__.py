"""The quality guard: detects that the model has become worse, raises alarms, and finds the examples that caused the
harm (`culprits`).

Nothing here does I/O, reads a clock, draws randomness or logs."""
