"""Facts about a model told from its files: shapes, layers, what it takes in memory. No torch."""
