"""Reads a user's own conversations from the journal. `curation/surroundings` prepares them."""
