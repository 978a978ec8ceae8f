"""Examples on the command line: list and show, reasons, decisions of a person, and `apollod ctl review`.

The journal holds what waits (`held_queue`, `desk`), the daemon records decisions (`deciding`); only `screen` knows the
terminal.
"""
