"""Documents to teach: their sections, the facts of each sentence by itself, and the lessons made from them.

All of it follows rules. Lessons that a model imagines about a section are requested and checked in
`imagined_questions`.
"""
