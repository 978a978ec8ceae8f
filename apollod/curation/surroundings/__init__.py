"""Text work for surroundings, the context before a request in real use: shipped ones, those from a person's own
records, and the conversation around a request. Pure; `core/surroundings` decides which one comes next."""
