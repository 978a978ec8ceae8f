"""Facts about a model derived from its files: shapes, layers, memory. No torch."""
