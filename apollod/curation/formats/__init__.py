"""Log formats: one file per format, each a `Reader` (reader.py), all of them in one table (table.py).

Shared pieces that several formats need (session_reader.py) live here too. Elsewhere: opening files, unpacking them,
keeping bad bytes (`adapters/sources`), and deciding what is learned of a record (`core`).
"""
