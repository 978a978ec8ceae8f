"""One outside thing per module: files, sockets, processes, SQLite. Adapters translate errors and make no decisions."""
