"""Records of each subject of the core: events, inputs, effects, its slice of the state, and pure functions of these.

Subjects import each other in one order (see the contract in pyproject.toml). Nothing here knows the whole state.
"""
