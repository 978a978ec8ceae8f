"""Model directories and the copy of the base model, as files: everything that needs neither numpy nor torch."""
