"""Communication between apollod's processes on one host: both ends of the supervisor's Unix socket, and shared memory.

Engine and trainer import from here, so nothing in this room may load anything heavy, nor know who decides what. The
frame itself and the messages are `wire`'s.
"""
