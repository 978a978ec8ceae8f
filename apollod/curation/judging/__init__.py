"""Prompts of the judge, and parsing of its answers. Pure; `core/judging` decides which examples to judge and acts on
the verdicts."""
