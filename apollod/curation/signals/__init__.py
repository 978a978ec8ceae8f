"""Cheap cues: evidence in a log about the quality of an answer, found without a model.

Pure, and fast enough for every turn of every log. A cue looks at one moment of a conversation and tells the answer that
it is about, its strength, and the words and records that show it. A family of cues is a file; `cues.py` is the table.
Removal says nothing bad: compactions, forks and edited prompts are not cues.
"""
