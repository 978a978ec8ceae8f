"""Reads a person's own surroundings from the journal. `curation/surroundings` prepares them."""
