"""Sources of examples: finds, identifies, unpacks and tails files; quarantines bad bytes.

This package only handles files. A `Reader` in `apollod.curation.formats` parses the bytes, and the core decides about a
record; the journal keeps the positions, and everything remembered here is a cache.
"""
