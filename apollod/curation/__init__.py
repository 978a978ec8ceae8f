"""Turns the bytes of a log into training examples: parsing formats and selecting learnable text.

Pure: bytes and values in, values out. It knows `wire` and `core`. No file, socket, clock, randomness or model is
touched here, so that reading the same log again gives the same examples; files and databases are the business of
`adapters/sources`, tokens that of the trainer.
"""
