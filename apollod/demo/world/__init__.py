"""A small world in which behaviour can be instructed, judged exactly and practised: requests, instructions, right
answers.

The model of `apollod/data/world-model` was pretrained on it. It follows instructions, for requests that it has never
seen, and shows none of the behaviours without them.
"""
