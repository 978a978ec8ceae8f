"""Rules that several subjects share, below all of them."""
