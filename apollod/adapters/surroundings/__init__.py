"""Reads a user's own conversations from the journal. `curation/surrounding_texts.py` prepares them."""
