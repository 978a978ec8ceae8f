"""`apollod ctl quality`: measure the model, and read the guard's findings and actions."""
