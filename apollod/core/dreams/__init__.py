"""Dreams: a pattern is practised in situations that the model imagines, until it holds without its instruction."""
