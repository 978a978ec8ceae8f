"""Lessons on the command line: `apollod ctl teach` and `apollod ctl lesson`.

`teach_verb` and `lesson_verb` ask and print; `until_known` waits for what becomes of a lesson; `lesson_page` tells of
one, with what `lesson_facts` finds in the journal: what was answered.
"""
