"""The product in a few minutes on this machine: a small model made here, its corpus, and the run that shows
learning."""
