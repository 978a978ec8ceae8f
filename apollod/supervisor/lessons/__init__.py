"""The lessons and what was learned, as people see them."""
