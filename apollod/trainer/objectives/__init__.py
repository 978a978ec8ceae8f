"""Losses, and the way from a record to one.

objective.py says what a loss has to be, and one file each holds one (sft.py); table.py names them all. Around them:
encoding.py (records to tokens), tokens.py (an encoded example and its digest), loss.py, head.py and model_ends.py
(the model's log-probabilities of learned tokens, without logits that exist whole). No optimizer, no message and no
file lives here; of `optim` only the row gradients are known, which head and embedding deliver.
"""
