"""Sources of examples: finds, identifies, unpacks and tails files; quarantines bad bytes.

Only file work lives here. What the bytes mean is said by a `Reader` in `apollod.curation.formats`, what becomes of a
record by the core; positions are kept by the journal, and whatever is remembered here is a cache.
"""
