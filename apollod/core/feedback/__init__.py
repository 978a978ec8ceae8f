"""Ratings of answers that the engine gave: `policy` records them, and `intake` adds and removes the examples that
follow from them."""
