"""Agents that keep their sessions in a database: recognising tables, querying them, reading rows.

Pure, like all of curation: the SQL stands here, and `adapters/sources/foreign_database.py` runs it.
"""
