"""Text work for lessons: how a statement is asked for, whether an answer says it, what gives it away, what cannot be
taught. Pure; what follows is decided in `core/lessons`."""
