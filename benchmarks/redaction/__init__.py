"""Measures how many secrets of a labelled sample redaction finds, and how often it redacts harmless text."""
