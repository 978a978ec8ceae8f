"""What a person sees of dreams, and asks for: `apollod ctl pattern` and `apollod ctl dream`.

`pattern_verb` and `dream_verb` ask and print. What the journal knows of dreams finds `dream_facts`, which `dream_trail`
tells; patterns come from the daemon (without one from the fold of its journal) and are told by `pattern_page`. What is
typed becomes a pattern in `pattern_given`, what was stripped becomes proposals in `proposing`.
"""
