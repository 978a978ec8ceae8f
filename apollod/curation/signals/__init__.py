"""Cheap cues: what a log shows, without asking a model, about how good an answer was.

Pure, and fast enough for every turn of every log. A cue looks at one moment of a conversation and says which answer it
is about, how much it says, and which words and records show it. A family of cues is a file; `cues.py` is the table.
What is removed is not bad: compactions, forks and prompts that were edited are no cue.
"""
