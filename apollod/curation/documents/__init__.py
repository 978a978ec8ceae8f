"""Documents that are taught: their sections, what each sentence says when it stands alone, and the lessons that makes.

All of it follows rules. What a model imagines about a section is asked for and checked in `imagined_questions`.
"""
