"""How much a model forgets while it learns one task after the other."""
