"""Log formats: one file per format, each a `Reader` (reader.py) of files or a `DatabaseReader` (database_reader.py),
and two tables of all (table.py). Pure: the SQL stands here, and `adapters/sources/foreign_database.py` runs it.

Shared pieces that several formats need (session_reader.py, turns.py) live here too. Elsewhere: opening files, unpacking
them, keeping bad bytes (`adapters/sources`), and deciding what is learned of a record (`core`).
"""
