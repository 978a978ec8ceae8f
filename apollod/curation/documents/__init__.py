"""Documents to teach: their sections, the facts of each sentence by itself, and the lessons made from them.

All of it follows rules, except for lessons that a model imagines about a section (`document_facts`).
"""
