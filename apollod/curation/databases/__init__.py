"""Agents that keep their sessions in a database: which tables are of whom, what to ask of them, what the rows say.

Pure, like all of curation: the SQL stands here, who runs it is `adapters/sources/foreign_database.py`.
"""
