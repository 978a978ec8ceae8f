"""Verbs of `apollod ctl` that only read: the journal file itself, beside the daemon or a copy without one.

No request is sent from here and no byte of the journal changes; what `example withdraw` tells the daemon is beside this
room. `*_verb` modules ask and print; `moment`, `example_ids`
and `example_facts` find what they ask for.
"""
