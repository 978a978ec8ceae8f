"""Examples on the command line: what was given to learn, why, what a person decides about it, and `apollod ctl review`.

The journal tells what waits (`held_queue`, `candidate`), the daemon records decisions (`deciding`); only `screen` knows
the terminal.
"""
