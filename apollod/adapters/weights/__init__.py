"""Model directories and the copy of the base model, as files: what can be asked and done without numpy or torch."""
