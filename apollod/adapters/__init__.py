"""One outside thing per module or folder: files, sockets, processes, SQLite. Adapters translate errors and make no
decisions."""
