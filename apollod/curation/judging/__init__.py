"""Prompts of the judge, and parsing of its answers. Pure; `core/judging` decides which examples are judged, and what
follows from a verdict."""
