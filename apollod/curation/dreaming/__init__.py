"""Text work for dreams: what an imagination is asked and what its answers are taken for, what gives a scenario away,
what is kept of it, whether an answer passes a check. Pure; what follows is decided in `core/dreams`."""
