"""Forgetting: roll the weights back to before an example was learned, then repeat the later steps without it. The
result equals `apollod replay --without` to the bit; request, intent and outcome are events (docs/decisions/0025)."""
