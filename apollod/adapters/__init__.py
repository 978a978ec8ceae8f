"""One outside thing a module: files, sockets, processes, SQLite. They translate errors and decide nothing."""
