"""Rows of data sets: the shapes that people have, one file a family, made into the three of `wire/records`.

`row_shapes.py` has the table. A row stands for itself, so files may mix them.
"""
