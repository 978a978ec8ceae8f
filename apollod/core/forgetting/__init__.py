"""What was learned and is not to be: the weights go back to before it, and the steps of all others are repeated, to the
bits of `apollod replay --without`. Who wished it, where it goes back to and how it ended are events
(docs/decisions/0025)."""
