"""Rows of data sets: common shapes, one file per family, converted to the three of `wire/records`.

`row_shapes.py` has the table. Each row is independent, so files may mix shapes.
"""
