"""Adapters of dreams: seeds from files and the journal, and checks that run a user's programs."""
