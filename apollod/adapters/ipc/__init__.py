"""Communication between apollod's processes on one host: both ends of the supervisor's Unix socket, and shared memory.

Engine and trainer import from here, so nothing in this package may load anything heavy or know which process decides.
The frame and the messages are defined in `wire`.
"""
