"""Losses, and the way from a record to one.

objective.py is the interface of a loss; sft.py, dpo.py and others hold one each, policy.py those of groups of rollouts;
table.py names them all. Around them:
encoding.py (records to tokens), tokens.py (an encoded example and its digest), loss.py (the model's log-probabilities
of learned tokens, without materialising all logits). No optimizer, no messages and no files here; of `optim` only the
row gradients are used, which head and embedding deliver.
"""
