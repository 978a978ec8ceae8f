"""A small world in which behaviour can be told, judged exactly and practised: requests, instructions, right answers.

The model of `apollod/data/world-model` was pretrained on it. It does what it is told, for requests that it has never
seen, and does none of it untold.
"""
