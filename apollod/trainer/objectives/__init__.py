"""Losses, and the way from a record to one.

objective.py is the interface of a loss, and has the plainest; context.py has those towards a teacher,
compared_answers.py and policy.py those of comparisons and of groups of rollouts; table.py names them all. Around them:
encoding.py (records to tokens), tokens.py (an encoded example and its digest), loss.py (the model's log-probabilities
of learned tokens, without materialising all logits). No optimizer, no messages and no files here; of `optim` only the
row gradients are used, which head and embedding deliver.
"""
